import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java producer: all that kafka-clients 0.8.2 has, and the produce step of the later programs. */
public final class ProducerOnly {
    private ProducerOnly() {}

    public static void main(String[] arguments) {
        produceSteps(new Contract(arguments));
    }

    static void produceSteps(Contract task) {
        for (int share = 0; share < task.codecs.size(); share++) {
            int from = share * Contract.SHARE;
            String codec = task.codecs.get(share);
            Contract.step("produce " + codec, () -> produce(task, codec, from));
        }
    }

    static void produce(Contract task, String codec, int from) throws Exception {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", task.bootstrap);
        configs.put("compression.type", codec);
        configs.put("linger.ms", "20");
        configs.put("acks", "all");
        configs.put("retries", "20");
        configs.put("key.serializer", ByteArraySerializer.class.getName());
        configs.put("value.serializer", ByteArraySerializer.class.getName());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(configs);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = from; number < from + Contract.SHARE; number++) {
            sent.add(producer.send(new ProducerRecord<>(task.topic, Contract.key(number), Contract.value(number))));
        }
        for (int at = 0; at < sent.size(); at++) {
            Contract.equal(sent.get(at).get(30, TimeUnit.SECONDS).offset(), (long) from + at);
        }
        producer.close();
    }
}
