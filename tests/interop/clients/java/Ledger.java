import java.time.Duration;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions one after the other until SIGTERM: Ledger BOOTSTRAP ID TOPIC PARTITIONS SEED.
 *
 * Transaction N writes N to each partition; one in five is aborted. A line of JSON gives its outcome: committed, aborted, or
 * unknown, if the producer had to be replaced by a new one of the same transactional id.
 */
public final class Ledger {
    private static final long WITHIN_MS = 120_000;
    private static volatile boolean isOver;

    public static void main(String[] arguments) {
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isOver = true;
            try {
                ended.await();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            run(arguments[0], arguments[1], arguments[2], Integer.parseInt(arguments[3]), new Random(Long.parseLong(arguments[4])));
        } finally {
            ended.countDown();
        }
    }

    private static void run(String bootstrap, String id, String topic, int partitions, Random dice) {
        KafkaProducer<String, String> producer = ready(bootstrap, id);
        for (int number = 0; !isOver; number++) {
            String outcome;
            try {
                outcome = transaction(producer, topic, partitions, String.valueOf(number), dice.nextInt(5) == 0);
            } catch (KafkaException fatal) {
                outcome = "unknown";  // the next producer's initTransactions decides it
                producer.close(Duration.ZERO);
                producer = ready(bootstrap, id);
            }
            System.out.println("{\"name\": \"transaction\", \"outcome\": \"" + outcome + "\"}");
        }
        producer.close();
    }

    /** Return a producer whose transactional id has no open transaction. */
    private static KafkaProducer<String, String> ready(String bootstrap, String id) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("transactional.id", id);
        configs.put("transaction.timeout.ms", "30000");
        configs.put("max.block.ms", "10000");
        for (long deadline = System.currentTimeMillis() + WITHIN_MS; ; ) {
            KafkaProducer<String, String> producer =
                new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
            try {
                producer.initTransactions();
                return producer;
            } catch (KafkaException cause) {
                producer.close(Duration.ZERO);
                if (System.currentTimeMillis() > deadline) {
                    throw cause;
                }
            }
        }
    }

    private static String transaction(
        KafkaProducer<String, String> producer, String topic, int partitions, String value, boolean isAborted
    ) {
        try {
            producer.beginTransaction();
            for (int partition = 0; partition < partitions; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, value));
            }
            if (!isAborted) {
                repeat(producer::commitTransaction);
                return "committed";
            }
            producer.flush();
        } catch (KafkaException cause) {
            // A fatal error is raised again by abortTransaction.
        }
        repeat(producer::abortTransaction);
        return "aborted";
    }

    /** Call again what has timed out: its request goes on, and may not be replaced by another one. */
    private static void repeat(Runnable action) {
        for (long deadline = System.currentTimeMillis() + WITHIN_MS; ; ) {
            try {
                action.run();
                return;
            } catch (TimeoutException cause) {
                if (System.currentTimeMillis() > deadline) {
                    throw cause;
                }
            }
        }
    }
}
