import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Where a consumer begins: Reset BOOTSTRAP TOPIC GROUP LATEST.
 *
 * For each auto.offset.reset, with nothing committed, with offset 5, and with offset 1000, which partition 0 of TOPIC does not
 * have, one line: the setting, what is committed (- for nothing), and the offset of the first record (LATEST if there is none
 * to wait for), or the exception.
 */
public final class Reset {
    public static void main(String[] arguments) {
        int number = 0;
        for (String reset : List.of("earliest", "latest", "none", "by_duration:PT1H")) {
            for (long committed : List.of(-1L, 5L, 1000L)) {
                Properties configs = new Properties();
                configs.put("bootstrap.servers", arguments[0]);
                configs.put("group.id", arguments[2] + number++);
                configs.put("auto.offset.reset", reset);
                configs.put("enable.auto.commit", "false");
                configs.put("fetch.max.wait.ms", "50");
                configs.put("key.deserializer", ByteArrayDeserializer.class.getName());
                configs.put("value.deserializer", ByteArrayDeserializer.class.getName());
                try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(configs)) {
                    String begins = begins(consumer, new TopicPartition(arguments[1], 0), committed, Long.parseLong(arguments[3]));
                    System.out.println(reset + " " + (committed < 0 ? "-" : committed) + " " + begins);
                }
            }
        }
    }

    private static String begins(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long committed, long latest) {
        if (committed >= 0) {
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(committed)));
        }
        consumer.assign(List.of(partition));
        try {
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty()) {
                    return Long.toString(records.iterator().next().offset());
                }
                if (consumer.position(partition) == latest) {
                    return Long.toString(latest);
                }
            }
        } catch (InvalidOffsetException refused) {
            return refused.getClass().getSimpleName();
        }
    }
}
