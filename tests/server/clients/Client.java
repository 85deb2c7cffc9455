// Kafka's own Java clients obey the orders of the client matrix: a line of JSON with an order comes in, one with the
// answer goes out. Members are polled in turn by one thread.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Client {
    static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);

    final Map<String, Object> bootstrap;
    final Admin admin;
    final Map<String, Producer<String, String>> producers = new HashMap<>();
    final Map<String, Consumer<String, String>> members = new HashMap<>();
    final Map<String, List<String>> seen = new HashMap<>();
    final Map<String, Producer<String, String>> transactional = new HashMap<>();

    Client(String servers) {
        bootstrap = Map.of("bootstrap.servers", servers);
        admin = Admin.create(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        var client = new Client(arguments[0]);
        var json = new ObjectMapper();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = in.readLine()) != null; ) {
            var answer = new HashMap<String, Object>();
            try {
                answer.put("result", client.obey(json.readTree(line)));
            } catch (Exception problem) {
                answer.put("error", problem.toString());
            }
            out.println(json.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    Object obey(JsonNode order) throws Exception {
        String topic = text(order, "topic"), group = text(order, "group"), member = text(order, "member");
        String producer = text(order, "producer");
        switch (text(order, "do")) {
            case "produce" -> produce(topic, order.get("values"), text(order, "codec"));
            case "join" -> join(member, group, topic, order);
            case "poll" -> { return poll(order.get("members")); }
            case "commit" -> members.get(member).commitSync(Map.of(
                new TopicPartition(topic, 0),
                new OffsetAndMetadata(order.get("offset").asLong(), text(order, "metadata"))));
            case "seek" -> members.get(member).seekToBeginning(List.of(new TopicPartition(topic, 0)));
            case "leave" -> members.remove(member).close();
            case "committed" -> { return committed(group); }
            case "groups" -> { return admin.listGroups().all().get().stream().map(GroupListing::groupId).toList(); }
            case "describe" -> { return describe(group); }
            case "alter_offsets" -> admin.alterConsumerGroupOffsets(group, Map.of(
                new TopicPartition(topic, 0), new OffsetAndMetadata(order.get("offset").asLong()))).all().get();
            case "delete_offsets" -> admin.deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0)))
                .all().get();
            case "delete_group" -> admin.deleteConsumerGroups(List.of(group)).all().get();
            case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
            case "transactional" -> transactional(producer, text(order, "id"), order.get("timeout_ms").asInt());
            case "begin" -> transactional.get(producer).beginTransaction();
            case "send" -> send(producer, topic, order);
            case "send_offset" -> transactional.get(producer).sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(order.get("offset").asLong())),
                members.get(member).groupMetadata());
            case "commit_transaction" -> transactional.get(producer).commitTransaction();
            case "abort_transaction" -> transactional.get(producer).abortTransaction();
            case "worker" -> worker(member, group, topic, order);
            case "process" -> { return process(member, text(order, "output")); }
            default -> throw new IllegalArgumentException(order.toString());
        }
        return null;
    }

    void produce(String topic, JsonNode values, String codec) throws Exception {
        var producer = producers.computeIfAbsent(codec, name -> {
            var given = new HashMap<>(bootstrap);
            given.putAll(Map.of("enable.idempotence", true, "compression.type", name, "linger.ms", 20));
            return new KafkaProducer<>(given, new StringSerializer(), new StringSerializer());
        });
        var sent = new ArrayList<Future<RecordMetadata>>();
        for (var value : values) sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value.asText())));
        for (var each : sent) each.get();
    }

    void join(String member, String group, String topic, JsonNode order) {
        var given = new HashMap<>(bootstrap);
        given.putAll(Map.of(
            "group.id", group,
            "client.id", member,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "session.timeout.ms", order.get("session_ms").asInt(),
            "heartbeat.interval.ms", 200,
            "max.poll.records", 10));
        if (text(order, "assignor") != null)
            given.put("partition.assignment.strategy", ASSIGNORS.get(text(order, "assignor")).getName());
        if (text(order, "instance") != null) given.put("group.instance.id", text(order, "instance"));
        if (order.hasNonNull("max_poll_ms")) given.put("max.poll.interval.ms", order.get("max_poll_ms").asInt());
        if (text(order, "isolation") != null) given.put("isolation.level", text(order, "isolation"));
        var consumer = new KafkaConsumer<>(given, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        members.put(member, consumer);
        seen.put(member, new ArrayList<>());
    }

    Object poll(JsonNode names) {
        var state = new HashMap<String, Object>();
        for (var each : names) {
            var consumer = members.get(each.asText());
            var values = seen.get(each.asText());
            consumer.poll(Duration.ofMillis(50)).forEach(message -> values.add(message.value()));
        }
        for (var each : names) {
            var assigned = members.get(each.asText()).assignment().stream().map(TopicPartition::partition).toList();
            state.put(each.asText(), Map.of("assigned", assigned, "values", seen.get(each.asText())));
        }
        return state;
    }

    Object committed(String group) throws Exception {
        var found = new ArrayList<List<Object>>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((where, offset) ->
            found.add(List.of(where.partition(), offset.offset(), offset.metadata())));
        return found;
    }

    Object describe(String group) throws Exception {
        var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        var clients = found.members().stream().map(MemberDescription::clientId).sorted().toList();
        return List.of(found.groupState().toString(), clients);
    }

    void transactional(String name, String id, int timeoutMs) {
        var given = new HashMap<>(bootstrap);
        given.putAll(Map.of("transactional.id", id, "transaction.timeout.ms", timeoutMs));
        var producer = new KafkaProducer<>(given, new StringSerializer(), new StringSerializer());
        transactional.put(name, producer);
        producer.initTransactions();
    }

    void send(String producer, String topic, JsonNode order) throws Exception {
        var records = new ArrayList<ProducerRecord<String, String>>();
        for (var value : order.get("values"))
            records.add(new ProducerRecord<>(
                topic, records.size() % order.get("partitions").asInt(), null, value.asText()));
        send(producer, records);
    }

    void send(String producer, List<ProducerRecord<String, String>> records) throws Exception {
        var sent = new ArrayList<Future<RecordMetadata>>();
        for (var each : records) sent.add(transactional.get(producer).send(each));
        transactional.get(producer).flush();
        for (var each : sent) each.get();
    }

    void worker(String member, String group, String topic, JsonNode order) {
        transactional(member, text(order, "id"), 60_000);
        join(member, group, topic, ((ObjectNode) order).put("isolation", "read_committed"));
    }

    Object process(String member, String output) throws Exception {
        var consumer = members.get(member);
        var records = new ArrayList<ProducerRecord<String, String>>();
        var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
        for (var each : consumer.poll(Duration.ofMillis(200))) {
            records.add(new ProducerRecord<>(output, each.partition(), null, "done " + each.value()));
            offsets.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        if (!records.isEmpty()) {
            transactional.get(member).beginTransaction();
            send(member, records);
            transactional.get(member).sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        }
        return records.size();
    }

    static String text(JsonNode order, String name) {
        return order.hasNonNull(name) ? order.get(name).asText() : null;
    }
}
