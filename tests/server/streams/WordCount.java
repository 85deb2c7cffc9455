// Counts words with Kafka Streams: lines of `words` in, each new count of a word into `counts`, until it is killed.

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    public static void main(String[] arguments) {
        var settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("processing.guarantee", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("application.id", "word-count-" + arguments[1]);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("statestore.cache.max.bytes", 0); // every count is told, not only the last of some
        settings.put("commit.interval.ms", 100);
        settings.put("replication.factor", 1);
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", 2_000);
        settings.put("consumer.heartbeat.interval.ms", 300);
        settings.put("producer.transaction.timeout.ms", 5_000);

        var builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts-" + arguments[1], Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) System.out.println("running");
            if (now == KafkaStreams.State.ERROR) Runtime.getRuntime().halt(1);
        });
        streams.start();
    }
}
