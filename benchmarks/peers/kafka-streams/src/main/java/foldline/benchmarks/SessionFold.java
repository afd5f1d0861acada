package foldline.benchmarks;

import java.nio.ByteBuffer;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The fold of session_fold.py in Kafka Streams, exactly once, on one thread.
 *
 * <p>Usage: SessionFold BOOTSTRAP APPLICATION_ID SOURCE TARGET STATE_DIR (cached | plain)
 *
 * <p>The state lies in RocksDB with a changelog topic. `cached` puts Streams' cache before it,
 * which then gets a session's last state once per commit; `plain` is how a store comes. The
 * commit interval is the 100 ms that exactly_once_v2 comes with.
 */
public final class SessionFold {
  private static final int STATE_BYTES = 256;
  private static final int STATUSES = 4;
  private static final int STATUS_AT = 8 + 8 * STATUSES;
  private static final String STORE = "sessions";

  private SessionFold() {}

  /** One event into its session's row; the event goes out behind its position. */
  private static final class Fold implements Processor<byte[], byte[], byte[], byte[]> {
    private ProcessorContext<byte[], byte[]> context;
    private KeyValueStore<byte[], byte[]> states;

    @Override
    public void init(final ProcessorContext<byte[], byte[]> processorContext) {
      context = processorContext;
      states = processorContext.getStateStore(STORE);
    }

    @Override
    public void process(final Record<byte[], byte[]> record) {
      final byte[] before = states.get(record.key());
      final byte[] after = before == null ? new byte[STATE_BYTES] : before.clone();
      final ByteBuffer state = ByteBuffer.wrap(after);
      final byte[] value = record.value();
      final int status = Byte.toUnsignedInt(value[0]) % STATUSES;
      final long seq = state.getLong(0) + 1;
      final int countAt = 8 + 8 * status;
      state.putLong(0, seq);
      state.putLong(countAt, state.getLong(countAt) + 1);
      state.put(STATUS_AT, (byte) status);
      states.put(record.key(), after);
      final byte[] out = ByteBuffer.allocate(8 + value.length).putLong(seq).put(value).array();
      context.forward(record.withValue(out));
    }
  }

  private static Topology topology(final String source, final String target, final boolean cached) {
    final StoreBuilder<KeyValueStore<byte[], byte[]>> plain =
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.ByteArray());
    final Topology topology = new Topology();
    topology.addSource("source", source);
    topology.addProcessor("fold", Fold::new, "source");
    topology.addStateStore(cached ? plain.withCachingEnabled() : plain, "fold");
    topology.addSink("target", target, "fold");
    return topology;
  }

  private static Properties settings(final String[] args) {
    final Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put("auto.offset.reset", "earliest");
    return settings;
  }

  /** Consume until killed. */
  public static void main(final String[] args) {
    final Topology topology = topology(args[2], args[3], args[5].equals("cached"));
    new KafkaStreams(topology, settings(args)).start();
  }
}
