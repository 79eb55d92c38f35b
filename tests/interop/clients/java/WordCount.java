import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A Kafka Streams application that counts words: WordCount BOOTSTRAP APPLICATION INPUT OUTPUT STATE_DIR GUARANTEE
 * [REPLICATION_FACTOR STANDBYS [GROUP_PROTOCOL]].
 *
 * Grouping by word makes a repartition topic, counting a changelog topic. Every count goes to OUTPUT, none is held back in a
 * cache. It writes "running" once it runs; a line on its input closes it.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        configs.put("application.id", arguments[1]);
        configs.put("state.dir", arguments[4]);
        configs.put("processing.guarantee", arguments[5]);
        String protocol = arguments.length > 8 ? arguments[8] : "classic";
        configs.put("group.protocol", protocol);
        configs.put("num.stream.threads", "2");
        configs.put("replication.factor", arguments.length > 6 ? arguments[6] : "1");
        if (protocol.equals("classic")) { // the group's configs say so otherwise
            configs.put("num.standby.replicas", arguments.length > 7 ? arguments[7] : "0");
            configs.put("consumer.session.timeout.ms", "6000");
            configs.put("consumer.heartbeat.interval.ms", "500");
        }
        configs.put("commit.interval.ms", "100");
        configs.put("statestore.cache.max.bytes", "0");
        configs.put("consumer.auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.Bytes(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), configs);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
                System.out.flush();
            }
        });
        streams.start();
        System.in.read();
        System.exit(streams.close(Duration.ofSeconds(30)) ? 0 : 1);
    }
}
