import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member with the Java consumer, of either protocol; tests/interop/members says what it tells. */
public final class Member implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private Set<Integer> had = Set.of();
    private boolean dirty = false;
    private static volatile boolean stopped = false;

    private Member(Properties configs) {
        consumer = new KafkaConsumer<>(configs);
    }

    public static void main(String[] arguments) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        configs.put("group.id", arguments[1]);
        if (!arguments[3].isEmpty()) {
            configs.put("group.instance.id", arguments[3]);
        }
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        configs.put("fetch.max.wait.ms", "50");
        configs.put("metadata.max.age.ms", "500");
        configs.put("key.deserializer", ByteArrayDeserializer.class.getName());
        configs.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int at = 4; at < arguments.length; at++) {
            String[] parts = arguments[at].split("=", 2);
            configs.put(parts[0], parts[1]);
        }
        Thread ears = new Thread(() -> {
            try {
                System.in.read();
            } catch (IOException closed) {
                // then it is to stop as well
            }
            stopped = true;
        });
        ears.setDaemon(true);
        ears.start();
        new Member(configs).run(arguments[2]);
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic), this);
        while (!stopped) {
            List<Integer> numbers = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(50))) {
                numbers.add(Integer.parseInt(new String(each.value())));
            }
            if (!numbers.isEmpty()) {
                tell("read", numbers);
                dirty = true;
            }
            commit();
            has(consumer.assignment(), Set.of());
        }
        consumer.close();
    }

    /** What cannot be committed in the middle of a rebalance is committed a little later. */
    private void commit() {
        if (dirty) {
            try {
                consumer.commitSync();
                dirty = false;
            } catch (RebalanceInProgressException | CommitFailedException later) {
                dirty = true;
            }
        }
    }

    private void has(Set<TopicPartition> assigned, Collection<TopicPartition> lost) {
        Set<Integer> now = new TreeSet<>();
        for (TopicPartition each : assigned) {
            if (!lost.contains(each)) {
                now.add(each.partition());
            }
        }
        if (!now.equals(had)) {
            had = now;
            tell("has", now);
        }
    }

    private static void tell(String what, Collection<Integer> numbers) {
        System.out.println("{\"" + what + "\": " + numbers + "}");
        System.out.flush();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        has(consumer.assignment(), partitions);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        // They are told in run.
    }
}
