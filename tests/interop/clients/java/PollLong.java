import java.util.Collections;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Java clients 0.9 to 1.1: `poll(long)`, offsets by `auto.offset.reset`. */
public final class PollLong {
    private final Contract task;
    private final TopicPartition partition;

    private PollLong(Contract task) {
        this.task = task;
        this.partition = new TopicPartition(task.topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Contract task = new Contract(arguments);
        PollLong program = new PollLong(task);
        if (task.settings.containsKey("admin")) {
            // A class of its own: 0.9 and 0.10 do not have the client.
            Class.forName("CreateAndDelete").getDeclaredMethod("step", Contract.class).invoke(null, task);
        }
        ProducerOnly.produceSteps(task);
        Contract.step("fetch", program::fetch);
        Contract.step("offsets", () -> {
            Contract.equal(program.end("earliest"), 0L);
            Contract.equal(program.end("latest"), (long) task.first());
        });
        Contract.step("commit", program::commit);
        Contract.step("group", () -> program.join(0, task.first()));
        Contract.step("resume", () -> {
            ProducerOnly.produce(task, "none", task.first());
            program.join(task.first(), task.first() + Contract.SHARE);
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String reset) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", task.bootstrap);
        configs.put("group.id", group);
        configs.put("auto.offset.reset", reset);
        configs.put("enable.auto.commit", "false");
        configs.put("key.deserializer", ByteArrayDeserializer.class.getName());
        configs.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<>(configs);
    }

    private void fetch() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-none", "earliest")) {
            consumer.assign(Collections.singletonList(partition));
            take(consumer, 0, task.first());
        }
    }

    private long end(String reset) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-none", reset)) {
            consumer.assign(Collections.singletonList(partition));
            return consumer.position(partition);
        }
    }

    private void commit() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group + "-alone", "earliest")) {
            consumer.assign(Collections.singletonList(partition));
            consumer.commitSync(Collections.singletonMap(partition, new OffsetAndMetadata(42, "by hand")));
            Contract.equal(consumer.committed(partition).offset(), 42L);
            Contract.equal(consumer.committed(partition).metadata(), "by hand");
        }
    }

    private void join(int from, int to) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(task.group, "earliest")) {
            consumer.subscribe(Collections.singletonList(task.topic));
            take(consumer, from, to);
            consumer.commitSync();
        }
    }

    private static void take(KafkaConsumer<byte[], byte[]> consumer, int from, int to) {
        int next = from;
        long deadline = System.currentTimeMillis() + 30000;
        while (next < to && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(100)) {
                Contract.equal(each.offset(), (long) next);
                Contract.same(next++, each.key(), each.value());
            }
        }
        Contract.equal(next, to);
        Contract.equal(consumer.poll(300).count(), 0);
    }
}
