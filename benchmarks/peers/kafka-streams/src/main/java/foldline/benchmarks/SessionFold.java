package foldline.benchmarks;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * The folds of session_fold.py in Kafka Streams, exactly once, on one thread.
 *
 * <p>Usage: SessionFold (admitting | bare) (cached | plain) BOOTSTRAP APPLICATION_ID SOURCE TARGET
 * STATE_DIR
 *
 * <p>The state lies in RocksDB with a changelog topic. `cached` puts Streams' cache before it,
 * which then gets a session's last state once per commit; `plain` is how a store comes. The
 * commit interval is the 100 ms that exactly_once_v2 comes with.
 */
public final class SessionFold {
  private static final int WINDOW = 128;
  private static final int STATE_BYTES = 256;
  private static final int STATUSES = 4;
  private static final int STATUS_AT = 8 + 8 * STATUSES;
  private static final String STORE = "sessions";

  private SessionFold() {}

  /** What both folds have. */
  private abstract static class Fold implements Processor<byte[], byte[], byte[], byte[]> {
    protected ProcessorContext<byte[], byte[]> context;
    protected KeyValueStore<byte[], byte[]> states;

    @Override
    public void init(final ProcessorContext<byte[], byte[]> processorContext) {
      context = processorContext;
      states = processorContext.getStateStore(STORE);
    }
  }

  /** What a session is to `Admitting`: JSON in the store. */
  public static final class State {
    public long seq;
    public String status = "";
    public Map<String, Long> counts = new TreeMap<>();
    public List<String> ids = new ArrayList<>();
  }

  /** An event that is there already is dropped, others go out with their seq. */
  private static final class Admitting extends Fold {
    private final ObjectMapper json = new ObjectMapper();

    @Override
    public void process(final Record<byte[], byte[]> record) {
      try {
        admit(record);
      } catch (final IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    private void admit(final Record<byte[], byte[]> record) throws IOException {
      final byte[] stored = states.get(record.key());
      final State state = stored == null ? new State() : json.readValue(stored, State.class);
      final ObjectNode event = (ObjectNode) json.readTree(record.value());
      final String id = event.get("event_id").asText();
      if (state.ids.contains(id)) {
        return;
      }
      state.ids.add(id);
      if (state.ids.size() > WINDOW) {
        state.ids.remove(0);
      }
      state.status = event.get("status").asText();
      state.counts.merge(state.status, 1L, Long::sum);
      state.seq++;
      event.put("seq", state.seq);
      states.put(record.key(), json.writeValueAsBytes(state));
      context.forward(record.withValue(json.writeValueAsBytes(event)));
    }
  }

  /** The cheapest fold: nothing is decoded, the event goes out behind its seq. */
  private static final class Bare extends Fold {
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

  private static Topology topology(
      final String fold, final String cache, final String source, final String target) {
    final ProcessorSupplier<byte[], byte[], byte[], byte[]> supplier =
        fold.equals("admitting") ? Admitting::new : Bare::new;
    final StoreBuilder<KeyValueStore<byte[], byte[]>> plain =
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.ByteArray(), Serdes.ByteArray());
    final Topology topology = new Topology();
    topology.addSource("source", source);
    topology.addProcessor("fold", supplier, "source");
    topology.addStateStore(cache.equals("cached") ? plain.withCachingEnabled() : plain, "fold");
    topology.addSink("target", target, "fold");
    return topology;
  }

  private static Properties settings(
      final String bootstrap, final String application, final String stateDir) {
    final Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDir);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    settings.put("auto.offset.reset", "earliest");
    return settings;
  }

  /** Consume until killed. */
  public static void main(final String[] args) {
    final Topology topology = topology(args[0], args[1], args[4], args[5]);
    new KafkaStreams(topology, settings(args[2], args[3], args[6])).start();
  }
}
