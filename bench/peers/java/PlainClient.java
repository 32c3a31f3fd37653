import static org.apache.kafka.clients.consumer.ConsumerConfig.*;
import static org.apache.kafka.clients.producer.ProducerConfig.BATCH_SIZE_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.COMPRESSION_TYPE_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.TRANSACTIONAL_ID_CONFIG;

import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.BytesDeserializer;
import org.apache.kafka.common.serialization.BytesSerializer;
import org.apache.kafka.common.utils.Bytes;

/** Consume, look, produce, commit: what a poll gives is a transaction. The set is only in memory. */
public final class PlainClient {
    private static final int POLL_EVENTS = 20_000;
    private static final int BATCH_BYTES = 128 << 10;
    private static final Duration WAIT = Duration.ofMillis(100);

    private final Asked asked;
    private final KafkaConsumer<Bytes, byte[]> consumer;
    private final KafkaProducer<Bytes, byte[]> producer;
    private final Set<Bytes> seen = new HashSet<>();

    private PlainClient(Asked asked) {
        this.asked = asked;
        consumer = new KafkaConsumer<>(
                Map.of(
                        BOOTSTRAP_SERVERS_CONFIG, asked.bootstrap(),
                        GROUP_ID_CONFIG, asked.group(),
                        ENABLE_AUTO_COMMIT_CONFIG, false,
                        AUTO_OFFSET_RESET_CONFIG, "earliest",
                        ISOLATION_LEVEL_CONFIG, "read_committed",
                        MAX_POLL_RECORDS_CONFIG, POLL_EVENTS),
                new BytesDeserializer(),
                new ByteArrayDeserializer());
        producer = new KafkaProducer<>(
                Map.of(
                        BOOTSTRAP_SERVERS_CONFIG, asked.bootstrap(),
                        TRANSACTIONAL_ID_CONFIG, asked.group(),
                        COMPRESSION_TYPE_CONFIG, asked.compression(),
                        BATCH_SIZE_CONFIG, BATCH_BYTES),
                new BytesSerializer(),
                new ByteArraySerializer());
    }

    public static void main(String[] arguments) throws IOException {
        var client = new PlainClient(Asked.read(arguments));
        var work = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.consumer.wakeup();
            try {
                work.join();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        client.run();
    }

    private void run() {
        try (consumer; producer) {
            producer.initTransactions();
            consumer.subscribe(List.of(asked.source()), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    Asked.tellAssigned(partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
            });
            while (true) {
                var records = consumer.poll(WAIT);
                if (!records.isEmpty()) {
                    passOn(records);
                }
            }
        } catch (WakeupException stopped) {
            // SIGTERM: what a poll gave before is committed.
        }
    }

    private void passOn(ConsumerRecords<Bytes, byte[]> records) {
        producer.beginTransaction();
        for (ConsumerRecord<Bytes, byte[]> record : records) {
            if (seen.add(record.key())) {
                producer.send(new ProducerRecord<>(
                        asked.sink(),
                        record.partition(),
                        record.timestamp(),
                        record.key(),
                        record.value()));
            }
        }
        producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
        producer.commitTransaction();
    }
}
