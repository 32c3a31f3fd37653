package org.apache.kafka.clients.consumer.internals; // CompletedFetch is of this package, and of no other

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * What Kafka's own code makes of record batches: whether a broker would append them, and what a consumer reads.
 *
 * <p>Each line of the input is a name and the bytes of a record batch in hex. Each line of the output is an object of
 * JSON. The first names the versions.
 */
public final class Framings {
    private static final TopicPartition WHERE = new TopicPartition("topic", 0);
    private static final HexFormat HEX = HexFormat.of();

    private Framings() {}

    public static void main(String[] arguments) throws IOException {
        System.out.printf(
                "{\"kafka-clients\": \"%s\", \"java\": \"%s\"}%n",
                AppInfoParser.getVersion(), System.getProperty("java.version"));
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                var parts = line.split(" ");
                var bytes = HEX.parseHex(parts[1]);
                System.out.printf(
                        "{\"name\": \"%s\", \"broker\": %s, %s}%n", parts[0], appended(bytes), consumed(bytes));
            }
        }
    }

    /** Append to a topic that keeps the codec of its producers: null, or the error. */
    private static String appended(byte[] bytes) {
        try {
            var sent = ByteBuffer.wrap(bytes.clone()).putLong(0, 0); // a producer's offsets begin at 0
            var records = MemoryRecords.readableRecords(sent);
            MutableRecordBatch batch = records.batches().iterator().next();
            batch.ensureValid();
            new LogValidator(
                            records,
                            WHERE,
                            Time.SYSTEM,
                            batch.compressionType(),
                            Compression.of(batch.compressionType()).build(),
                            false,
                            RecordBatch.CURRENT_MAGIC_VALUE,
                            TimestampType.CREATE_TIME,
                            Long.MAX_VALUE,
                            Long.MAX_VALUE,
                            0,
                            AppendOrigin.CLIENT)
                    .validateMessagesAndAssignOffsets(
                            PrimitiveRef.ofLong(0), new Uncounted(), BufferSupplier.NO_CACHING);
            return "null";
        } catch (RuntimeException | Error error) {
            return described(error);
        }
    }

    /** Consume by what is behind `KafkaConsumer.poll`: the records, the offset of the next fetch, and the error. */
    private static String consumed(byte[] bytes) {
        var partition = new FetchResponseData.PartitionData()
                .setPartitionIndex(0)
                .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
        var subscriptions = new SubscriptionState(new LogContext(), AutoOffsetResetStrategy.EARLIEST);
        subscriptions.assignFromUser(Set.of(WHERE));
        var manager = new FetchMetricsManager(new Metrics(), new FetchMetricsRegistry());
        var log = new LogContext().logger(Framings.class);
        var first = ByteBuffer.wrap(bytes).getLong();
        var fetch = new CompletedFetch(
                log,
                subscriptions,
                BufferSupplier.NO_CACHING,
                WHERE,
                partition,
                new FetchMetricsAggregator(manager, Set.of(WHERE)),
                first);
        var config = new FetchConfig(1, 1, 1, 1, 1, true, "", IsolationLevel.READ_COMMITTED);
        var bytesAsTheyAre = new ByteArrayDeserializer();
        var records = new ArrayList<String>();
        var error = "null";
        try (var deserializers = new Deserializers<>(bytesAsTheyAre, bytesAsTheyAre, null)) {
            List<ConsumerRecord<byte[], byte[]>> polled = fetch.fetchRecords(config, deserializers, 1);
            while (!polled.isEmpty()) {
                polled.forEach(record -> records.add(shown(record)));
                polled = fetch.fetchRecords(config, deserializers, 1);
            }
        } catch (RuntimeException | Error thrown) {
            error = described(thrown);
        }
        return "\"read\": [%s], \"next\": %d, \"error\": %s"
                .formatted(String.join(", ", records), fetch.nextFetchOffset(), error);
    }

    private static String shown(ConsumerRecord<byte[], byte[]> record) {
        var headers = new ArrayList<String>();
        for (Header header : record.headers()) {
            headers.add("[\"%s\", %s]".formatted(header.key(), hex(header.value())));
        }
        return "[%d, %d, %s, %s, [%s]]"
                .formatted(
                        record.offset(),
                        record.timestamp(),
                        hex(record.key()),
                        hex(record.value()),
                        String.join(", ", headers));
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "null" : '"' + HEX.formatHex(bytes) + '"';
    }

    /** The innermost cause, which names what is wrong. */
    private static String described(Throwable error) {
        var cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        var text = "%s: %s".formatted(cause.getClass().getSimpleName(), cause.getMessage());
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
    }

    private static final class Uncounted implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() {}

        @Override
        public void recordInvalidOffset() {}

        @Override
        public void recordInvalidSequence() {}

        @Override
        public void recordInvalidChecksums() {}

        @Override
        public void recordNoKeyCompactedTopic() {}
    }
}
