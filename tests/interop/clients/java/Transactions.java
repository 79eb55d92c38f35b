import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactions of the Java client.
 *
 * Transactions write BOOTSTRAP ID TOPIC                    one committed, one aborted, one that a twin fences, one of the twin
 * Transactions loop BOOTSTRAP ID INPUT OUTPUT GROUP COUNT  read, process, write until COUNT inputs are done; every third
 *                                                          transaction is aborted and done again
 */
public final class Transactions {
    public static void main(String[] arguments) {
        if (arguments[0].equals("write")) {
            write(arguments[1], arguments[2], arguments[3]);
        } else {
            loop(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], Integer.parseInt(arguments[6]));
        }
        System.exit(0);
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("transactional.id", id);
        configs.put("max.block.ms", "30000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private static void write(String bootstrap, String id, String topic) {
        KafkaProducer<String, String> first = producer(bootstrap, id);
        for (String word : List.of("committed", "aborted", "fenced")) {
            first.beginTransaction();
            for (int number = 0; number < 20; number++) {
                first.send(new ProducerRecord<>(topic, number % 4, null, word + " " + number));
            }
            first.flush();
            if (word.equals("committed")) {
                first.commitTransaction();
            } else if (word.equals("aborted")) {
                first.abortTransaction();
            }
        }
        KafkaProducer<String, String> second = producer(bootstrap, id);
        try {
            first.commitTransaction();
            System.out.println("committed by a zombie");
        } catch (KafkaException fenced) {
            System.out.println(fenced.getClass().getSimpleName());
        }
        second.beginTransaction();
        for (int number = 0; number < 20; number++) {
            second.send(new ProducerRecord<>(topic, number % 4, null, "twin " + number));
        }
        second.commitTransaction();
        second.close();
        first.close(Duration.ZERO);
    }

    private static void loop(String bootstrap, String id, String input, String output, String group, int count) {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("group.id", group);
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        configs.put("isolation.level", "read_committed");
        configs.put("max.poll.records", "10");
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(input));
        KafkaProducer<String, String> producer = producer(bootstrap, id);
        int done = 0;
        for (int turn = 1; done < count; ) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> begins = new HashMap<>();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                begins.putIfAbsent(partition, new OffsetAndMetadata(record.offset()));
                ends.put(partition, new OffsetAndMetadata(record.offset() + 1));
                producer.send(new ProducerRecord<>(output, record.value() + " done"));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            if (turn++ % 3 == 0) {
                producer.abortTransaction();
                begins.forEach((partition, begin) -> consumer.seek(partition, begin.offset()));
            } else {
                producer.commitTransaction();
                done += records.count();
            }
        }
        System.out.println("done " + done);
        producer.close();
        consumer.close();
    }
}
