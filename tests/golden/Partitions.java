// Writes what Kafka's own Java client makes of keys: one line per key, its partitions
// among the numbers of partitions that the arguments give.
//
//   java -cp "JARS/*" Partitions.java 1 2 3 4 6 12 16 64 1000 < keys
//
// Keys are one per line, in UTF-8.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] counts) throws Exception {
        var keys = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String key = keys.readLine(); key != null; key = keys.readLine()) {
            byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
            var line = new StringBuilder();
            for (String count : counts) {
                line.append(line.length() == 0 ? "" : " ").append(
                    BuiltInPartitioner.partitionForKey(bytes, Integer.parseInt(count)));
            }
            out.println(line);
        }
        out.flush();
    }
}
