// Transactions with Kafka's own producer, one after another: rate, and how long commits take. Prints a line of JSON.

import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] arguments) {
        String servers = arguments[0], topic = arguments[1];
        int records = Integer.parseInt(arguments[2]), size = Integer.parseInt(arguments[3]);
        int partitions = Integer.parseInt(arguments[4]);
        long warmup = (long) (Double.parseDouble(arguments[5]) * 1e9), span = (long) (Double.parseDouble(arguments[6]) * 1e9);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "transactional.id", "bench-" + topic, "linger.ms", 0);
        var took = new long[1 << 20];
        var payload = new byte[size];
        int count = 0;
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            long begun = System.nanoTime() + warmup;
            for (long now = System.nanoTime(); now < begun + span && count < took.length; ) {
                producer.beginTransaction();
                for (int number = 0; number < records; number++)
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, payload));
                producer.flush();
                long flushed = System.nanoTime();
                producer.commitTransaction();
                now = System.nanoTime();
                if (now >= begun) took[count++] = now - flushed;
            }
            double seconds = (System.nanoTime() - begun) / 1e9;
            var sorted = Arrays.copyOf(took, count);
            Arrays.sort(sorted);
            System.out.printf(
                java.util.Locale.ROOT, "{\"rate\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"failed\": []}%n",
                count / seconds, sorted[count / 2] / 1e3, sorted[count * 99 / 100] / 1e3);
        }
    }
}
