import static org.apache.kafka.clients.consumer.ConsumerConfig.AUTO_OFFSET_RESET_CONFIG;
import static org.apache.kafka.clients.consumer.ConsumerConfig.MAX_POLL_RECORDS_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.BATCH_SIZE_CONFIG;
import static org.apache.kafka.clients.producer.ProducerConfig.COMPRESSION_TYPE_CONFIG;
import static org.apache.kafka.streams.StreamsConfig.*;

import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** A stream, a store of the keys that were there, and what is new passes on: exactly once, the store with a changelog. */
public final class StreamsDedup {
    private static final String STORE = "seen";
    private static final byte[] SEEN = {1};
    private static final int THREADS = 2;
    private static final int COMMIT_MS = 100;
    private static final int POLL_EVENTS = 10_000;
    private static final int BATCH_BYTES = 128 << 10;

    private StreamsDedup() {}

    /**
     * Arguments: bootstrap servers, application, source, sink, compression, directory of the state; the store, `memory`
     * or `rocksdb`; and `defaults`, which leaves the clients as they are.
     */
    public static void main(String[] arguments) {
        var source = arguments[2];
        var topology = topology(source, arguments[3], store(arguments[6]));
        var streams = new KafkaStreams(topology, settings(arguments, arguments.length == 7));
        streams.setStateListener((state, before) -> {
            if (state == KafkaStreams.State.RUNNING) {
                var numbers = sources(streams, source).stream().map(TopicPartition::partition).sorted().toList();
                System.err.println("{\"event\": \"assigned\", \"partitions\": " + numbers + "}");
            }
        });
        // At SIGTERM it commits what is in hand.
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static Topology topology(String source, String sink, KeyValueBytesStoreSupplier kind) {
        var store = Stores.keyValueStoreBuilder(kind, Serdes.Bytes(), Serdes.ByteArray());
        var builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.Bytes(), Serdes.ByteArray()))
                .processValues(new New(store))
                .to(sink, Produced.with(Serdes.Bytes(), Serdes.ByteArray()));
        return builder.build();
    }

    private static KeyValueBytesStoreSupplier store(String named) {
        return switch (named) {
            case "memory" -> Stores.inMemoryKeyValueStore(STORE);
            case "rocksdb" -> Stores.persistentKeyValueStore(STORE);
            default -> throw new IllegalArgumentException("no such store: " + named);
        };
    }

    private static Properties settings(String[] arguments, boolean tuned) {
        var settings = new Properties();
        settings.put(APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(PROCESSING_GUARANTEE_CONFIG, EXACTLY_ONCE_V2);
        settings.put(COMMIT_INTERVAL_MS_CONFIG, COMMIT_MS);
        settings.put(NUM_STREAM_THREADS_CONFIG, THREADS);
        settings.put(STATE_DIR_CONFIG, arguments[5]);
        settings.put(StreamsConfig.consumerPrefix(AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(COMPRESSION_TYPE_CONFIG), arguments[4]);
        if (tuned) {
            settings.put(StreamsConfig.consumerPrefix(MAX_POLL_RECORDS_CONFIG), POLL_EVENTS);
            settings.put(StreamsConfig.producerPrefix(BATCH_SIZE_CONFIG), BATCH_BYTES);
        }
        return settings;
    }

    private static Set<TopicPartition> sources(KafkaStreams streams, String topic) {
        return streams.metadataForLocalThreads().stream()
                .flatMap(thread -> thread.activeTasks().stream())
                .flatMap(task -> task.topicPartitions().stream())
                .filter(partition -> partition.topic().equals(topic))
                .collect(Collectors.toSet());
    }

    /** Passes on what has a key that its store does not have yet. */
    private record New(StoreBuilder<KeyValueStore<Bytes, byte[]>> store)
            implements FixedKeyProcessorSupplier<Bytes, byte[], byte[]> {
        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(store);
        }

        @Override
        public FixedKeyProcessor<Bytes, byte[], byte[]> get() {
            return new FixedKeyProcessor<>() {
                private FixedKeyProcessorContext<Bytes, byte[]> context;
                private KeyValueStore<Bytes, byte[]> seen;

                @Override
                public void init(FixedKeyProcessorContext<Bytes, byte[]> given) {
                    context = given;
                    seen = given.getStateStore(STORE);
                }

                @Override
                public void process(FixedKeyRecord<Bytes, byte[]> event) {
                    if (seen.putIfAbsent(event.key(), SEEN) == null) {
                        context.forward(event);
                    }
                }
            };
        }
    }
}
