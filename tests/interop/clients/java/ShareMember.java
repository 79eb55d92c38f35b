import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A share consumer: BOOTSTRAP GROUP TOPIC; as tests/interop/members/share_confluent.py. */
public final class ShareMember {
    private static volatile boolean stopped = false;

    private ShareMember() {
    }

    public static void main(String[] arguments) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        configs.put("group.id", arguments[1]);
        configs.put("fetch.max.wait.ms", "100");
        configs.put("reconnect.backoff.max.ms", "500");
        Thread ears = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    Thread.onSpinWait();
                }
            } catch (IOException closed) {
                // then it is to stop as well
            }
            stopped = true;
        });
        ears.setDaemon(true);
        ears.start();
        StringDeserializer strings = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(configs, strings, strings)) {
            consumer.subscribe(List.of(arguments[2]));
            while (!stopped) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        System.out.println(record.value());
                    }
                    System.out.flush();
                } catch (KafkaException gone) {
                    System.err.println(gone);
                }
            }
        }
    }
}
