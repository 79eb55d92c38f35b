import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** Kafka 0.8's own Scala clients: the producer of 0.7's days and the SimpleConsumer, which needs no ZooKeeper. */
public final class Simple {
    private static final int PARTITION = 0;
    private static final long EARLIEST = -2;
    private static final long LATEST = -1;

    private final Contract task;

    private Simple(Contract task) {
        this.task = task;
    }

    public static void main(String[] arguments) throws Exception {
        Contract task = new Contract(arguments);
        Simple simple = new Simple(task);
        for (int share = 0; share < task.codecs.size(); share++) {
            int from = share * Contract.SHARE;
            String codec = task.codecs.get(share);
            Contract.step("produce " + codec, () -> simple.produce(codec, from));
        }
        SimpleConsumer consumer = new SimpleConsumer(task.host, task.port, 30000, 1 << 16, "simple");
        Contract.step("fetch", () -> simple.fetch(consumer));
        Contract.step("offsets", () -> {
            Contract.equal(simple.offset(consumer, EARLIEST), 0L);
            Contract.equal(simple.offset(consumer, LATEST), (long) task.first());
        });
        if (task.settings.containsKey("offsets")) {
            // A class of its own: 0.8.0 does not have the requests.
            Class.forName("SimpleOffsets")
                    .getDeclaredMethod("step", Contract.class, SimpleConsumer.class)
                    .invoke(null, task, consumer);
        }
        consumer.close();
        System.exit(0);
    }

    private void produce(String codec, int from) {
        Properties configs = new Properties();
        configs.put("metadata.broker.list", task.bootstrap);
        configs.put("serializer.class", "kafka.serializer.DefaultEncoder");
        configs.put("compression.codec", codec);
        configs.put("request.required.acks", "1");
        configs.put("message.send.max.retries", "20");
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(configs));
        KeyedMessage<byte[], byte[]>[] messages = array(Contract.SHARE);
        for (int at = 0; at < messages.length; at++) {
            messages[at] = new KeyedMessage<>(task.topic, Contract.key(from + at), Contract.value(from + at));
        }
        producer.send(Arrays.asList(messages));
        producer.close();
    }

    @SuppressWarnings("unchecked")
    private static KeyedMessage<byte[], byte[]>[] array(int length) {
        return new KeyedMessage[length];
    }

    /** By 2,000 bytes at a time, so that most answers end in a torn message. */
    private void fetch(SimpleConsumer consumer) {
        int next = 0;
        int size = 2000;
        while (next < task.first()) {
            FetchResponse response = consumer.fetch(
                    new FetchRequestBuilder().clientId("simple").addFetch(task.topic, PARTITION, next, size).build());
            Contract.equal(response.errorCode(task.topic, PARTITION), (short) 0);
            Contract.equal(response.highWatermark(task.topic, PARTITION), (long) task.first());
            int before = next;
            for (MessageAndOffset each : response.messageSet(task.topic, PARTITION)) {
                if (each.offset() < next) {
                    continue; // a compressed set begins before what was asked for
                }
                Contract.equal(each.offset(), (long) next);
                each.message().ensureValid();
                Contract.same(next, bytes(each.message().key()), bytes(each.message().payload()));
                next++;
            }
            size = next == before ? size * 2 : 2000; // a compressed set is larger than that
            if (size > 1 << 20) {
                throw new AssertionError("nothing at " + next);
            }
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private long offset(SimpleConsumer consumer, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>(Collections.singletonMap(
                new TopicAndPartition(task.topic, PARTITION), new PartitionOffsetRequestInfo(time, 1)));
        return consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "simple")).offsets(task.topic, PARTITION)[0];
    }
}
