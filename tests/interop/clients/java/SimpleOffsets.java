import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import kafka.api.ConsumerMetadataRequest;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.network.BlockingChannel;

/** Committed offsets as 0.8.2 has them: version 0 and version 1 of both requests, at the coordinator that it is told. */
final class SimpleOffsets {
    private SimpleOffsets() {}

    static void step(Contract task, SimpleConsumer unused) {
        Contract.step("commit", () -> {
            SimpleConsumer consumer = coordinator(task);
            for (short version = 0; version < 2; version++) {
                roundTrip(consumer, new TopicAndPartition(task.topic, 0), task.group + version, version);
            }
            consumer.close();
        });
    }

    private static SimpleConsumer coordinator(Contract task) throws InterruptedException {
        int size = BlockingChannel.UseDefaultBufferSize();
        BlockingChannel channel = new BlockingChannel(task.host, task.port, size, size, 10000);
        channel.connect();
        try {
            for (int attempt = 0; attempt < 50; attempt++) {
                channel.send(new ConsumerMetadataRequest(task.group, (short) 0, attempt, "simple"));
                ConsumerMetadataResponse answer = ConsumerMetadataResponse.readFrom(channel.receive().buffer());
                if (answer.errorCode() == 0) {
                    return new SimpleConsumer(answer.coordinator().host(), answer.coordinator().port(), 10000, 1 << 16, "simple");
                }
                Thread.sleep(100);
            }
            throw new AssertionError("no coordinator");
        } finally {
            channel.disconnect();
        }
    }

    private static void roundTrip(SimpleConsumer consumer, TopicAndPartition partition, String group, short version)
            throws InterruptedException {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(partition, new OffsetAndMetadata(42, "told by 0.8.2", -1L));
        Object code = null;
        for (int attempt = 0; attempt < 50 && !Short.valueOf((short) 0).equals(code); attempt++) {
            if (attempt > 0) {
                Thread.sleep(100); // the coordinator is loading
            }
            code = consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 1, "simple", version)).errors().get(partition);
        }
        Contract.equal(code, (short) 0);
        OffsetMetadataAndError found = consumer
                .fetchOffsets(new OffsetFetchRequest(group, Collections.singletonList(partition), version, 2, "simple"))
                .offsets()
                .get(partition);
        Contract.equal(found.error(), (short) 0);
        Contract.equal(found.offset(), 42L);
        Contract.equal(found.metadata(), "told by 0.8.2");
    }
}
