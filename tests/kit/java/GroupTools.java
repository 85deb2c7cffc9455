// Kafka's own tools and clients, many actions in one JVM, because starting one takes longer than most of what it does.
//
//   java -cp 'libs/*' GroupTools.java tools HOST:PORT < commands     kafka-consumer-groups, a line of words each
//   java -cp 'libs/*' GroupTools.java answers HOST:PORT              the same one by one: "== over" ends each answer,
//                                                                    and errors go to the other output
//   java -cp 'libs/*' GroupTools.java admin HOST:PORT                the Admin client about groups
//   java -cp 'libs/*' GroupTools.java consumers HOST:PORT STORY...   consumers that come and go: by an assignor's name,
//                                                                    upgrade, static
//
// Prints what was asked after "== ", then what was answered; times and random ids are left to whoever compares.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

public class GroupTools {
    static final Duration WAIT = Duration.ofSeconds(40);

    public static void main(String[] arguments) throws Exception {
        System.setOut(new PrintStream(System.out, true, StandardCharsets.UTF_8));
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "tools" -> tools(bootstrap, false);
            case "answers" -> tools(bootstrap, true);
            case "admin" -> admin(bootstrap);
            case "consumers" -> new Consumers(bootstrap).run(List.of(arguments).subList(2, arguments.length));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("== done");
        Runtime.getRuntime().halt(0);
    }

    // kafka-consumer-groups.

    static void tools(String bootstrap, boolean oneByOne) throws Exception {
        Exit.Procedure exit = (status, message) -> {
            throw new IllegalStateException("exit " + status + (message == null ? "" : ": " + message));
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        if (!oneByOne)
            System.setErr(System.out);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println("== " + line);
            List<String> words = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
            words.addAll(List.of(line.split(" ")));
            try {
                ConsumerGroupCommand.main(words.toArray(new String[0]));
            } catch (IllegalStateException ended) {
                System.out.println(ended.getMessage());
            }
            if (oneByOne)
                System.out.println("== over");
        }
    }

    // The Admin client.

    static void show(String what, Callable<Object> ask) {
        System.out.println("== " + what);
        try {
            System.out.println(sorted(ask.call()));
        } catch (ExecutionException wrapped) {
            System.out.println(wrapped.getCause());
        } catch (Exception problem) {
            System.out.println(problem);
        }
    }

    /** The same text for the same content, whatever the order of a map was. */
    static String sorted(Object value) {
        if (value instanceof Map<?, ?> map) {
            TreeMap<String, String> rows = new TreeMap<>();
            map.forEach((key, one) -> rows.put(String.valueOf(key), sorted(one)));
            return rows.entrySet().stream().map(Object::toString).collect(Collectors.joining("\n"));
        }
        if (value instanceof Collection<?> items)
            return items.stream().map(GroupTools::sorted).sorted().collect(Collectors.joining("\n"));
        if (value instanceof Optional<?> maybe)
            return maybe.map(GroupTools::sorted).orElse("none");
        return String.valueOf(value);
    }

    /** Each key with what became of it, also where that is an error. */
    static <K, V> Map<String, String> each(Map<K, KafkaFuture<V>> futures, Function<V, Object> told) {
        Map<String, String> outcome = new TreeMap<>();
        futures.forEach((key, future) -> outcome.put(String.valueOf(key), get(future, told)));
        return outcome;
    }

    static <V> String get(KafkaFuture<V> future, Function<V, Object> told) {
        try {
            return sorted(told.apply(future.get()));
        } catch (ExecutionException wrapped) {
            return String.valueOf(wrapped.getCause());
        } catch (InterruptedException stopped) {
            throw new IllegalStateException(stopped);
        }
    }

    static List<String> members(Collection<MemberDescription> members) {
        return members.stream().map(each -> each.consumerId() + " " + each.groupInstanceId() + " " + each.clientId() + " "
            + each.host() + " " + each.assignment().topicPartitions().stream().map(Object::toString).sorted().toList())
            .sorted().toList();
    }

    static Object classic(ClassicGroupDescription group) {
        return group.groupId() + " " + group.protocol() + " " + group.protocolData() + " " + group.state() + " "
            + group.coordinator() + " " + group.authorizedOperations() + " " + members(group.members());
    }

    static Object described(ConsumerGroupDescription group) {
        return group.groupId() + " " + group.isSimpleConsumerGroup() + " " + group.partitionAssignor() + " "
            + group.type() + " " + group.groupState() + " " + group.coordinator() + " "
            + new TreeSet<>(Objects.requireNonNullElse(group.authorizedOperations(), Set.of())) + " "
            + members(group.members());
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(Object... triples) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int i = 0; i < triples.length; i += 3)
            offsets.put(new TopicPartition((String) triples[i], (Integer) triples[i + 1]),
                new OffsetAndMetadata(((Integer) triples[i + 2]).longValue(), Optional.of(3), "by hand"));
        return offsets;
    }

    static void admin(String bootstrap) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 20_000,
            "request.timeout.ms", 10_000);
        List<String> groups = List.of("idle", "left", "live", "static", "never");
        Set<TopicPartition> some = Set.of(new TopicPartition("orders", 0), new TopicPartition("payments", 1));
        try (Admin admin = Admin.create(settings)) {
            show("cluster", () -> {
                DescribeClusterResult cluster =
                    admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
                return List.of(cluster.controller().get(), cluster.nodes().get(),
                    "operations " + new TreeSet<>(cluster.authorizedOperations().get()));
            });
            show("topics", () -> admin.listTopics().names().get());
            show("internal", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get().stream()
                .map(each -> each.name() + " " + each.isInternal()).filter(each -> !each.startsWith("__transaction")).toList());
            show("describe topics", () -> each(admin.describeTopics(List.of("orders", "payments", "never"),
                new DescribeTopicsOptions().includeAuthorizedOperations(true)).topicNameValues(),
                topic -> topic.name() + topic.partitions() + new TreeSet<>(topic.authorizedOperations())));
            show("end offsets", () -> admin.listOffsets(Map.of(new TopicPartition("orders", 0), OffsetSpec.latest(),
                new TopicPartition("orders", 1), OffsetSpec.earliest(), new TopicPartition("orders", 2),
                OffsetSpec.forTimestamp(5), new TopicPartition("payments", 0), OffsetSpec.maxTimestamp())).all().get());
            show("list", () -> admin.listGroups().all().get());
            show("list stable", () -> admin.listGroups(
                new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all().get());
            show("list classic", () -> admin.listGroups(
                new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).all().get());
            show("list share", () -> admin.listGroups(
                new ListGroupsOptions().withTypes(Set.of(GroupType.SHARE))).all().get());
            show("list consumer groups", () -> admin.listConsumerGroups().all().get());
            show("describe", () -> each(admin.describeConsumerGroups(groups,
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).describedGroups(),
                GroupTools::described));
            show("describe classic", () -> each(admin.describeClassicGroups(groups).describedGroups(),
                GroupTools::classic));
            for (boolean stable : new boolean[] {false, true})
                show("offsets, stable " + stable, () -> groups.stream().collect(Collectors.toMap(group -> group,
                    group -> get(admin.listConsumerGroupOffsets(group,
                        new ListConsumerGroupOffsetsOptions().requireStable(stable)).partitionsToOffsetAndMetadata(),
                        found -> found))));
            show("some offsets of several", () -> {
                ListConsumerGroupOffsetsSpec spec = new ListConsumerGroupOffsetsSpec().topicPartitions(some);
                ListConsumerGroupOffsetsResult found =
                    admin.listConsumerGroupOffsets(Map.of("idle", spec, "live", spec, "never", spec));
                return found.all().get();
            });
            show("alter", () -> admin.alterConsumerGroupOffsets("idle",
                offsets("orders", 0, 77, "payments", 1, 5)).all().get());
            show("alter a new group", () -> admin.alterConsumerGroupOffsets("made", offsets("orders", 2, 9)).all().get());
            show("alter a live group", () -> admin.alterConsumerGroupOffsets("live", offsets("orders", 0, 7)).all().get());
            show("alter an unknown topic", () -> {
                AlterConsumerGroupOffsetsResult altered =
                    admin.alterConsumerGroupOffsets("idle", offsets("never", 0, 1, "orders", 9, 1, "orders", 1, 4));
                return Map.of("never", get(altered.partitionResult(new TopicPartition("never", 0)), each -> "done"),
                    "orders 9", get(altered.partitionResult(new TopicPartition("orders", 9)), each -> "done"),
                    "orders 1", get(altered.partitionResult(new TopicPartition("orders", 1)), each -> "done"));
            });
            show("altered", () -> admin.listConsumerGroupOffsets("idle").partitionsToOffsetAndMetadata().get());
            show("delete offsets", () -> admin.deleteConsumerGroupOffsets("idle", some).all().get());
            show("delete offsets of a live group", () -> admin.deleteConsumerGroupOffsets("live", some).all().get());
            show("delete offsets of no group", () -> admin.deleteConsumerGroupOffsets("never", some).all().get());
            show("delete offsets of no topic", () -> admin.deleteConsumerGroupOffsets("idle",
                Set.of(new TopicPartition("never", 0))).all().get());
            show("deleted", () -> admin.listConsumerGroupOffsets("idle").partitionsToOffsetAndMetadata().get());
            show("remove an instance that is not there", () -> admin.removeMembersFromConsumerGroup("static",
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody")))).all().get());
            show("remove an instance", () -> admin.removeMembersFromConsumerGroup("static",
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one")))).all().get());
            show("removed", () -> described(admin.describeConsumerGroups(List.of("static")).all().get().get("static")));
            show("delete", () -> each(admin.deleteConsumerGroups(
                List.of("made", "left", "live", "never")).deletedGroups(), done -> "deleted"));
            RemoveMembersFromConsumerGroupOptions everybody = new RemoveMembersFromConsumerGroupOptions();
            everybody.reason("time to go");
            show("remove everybody", () -> admin.removeMembersFromConsumerGroup("live", everybody).all().get());
            show("remove everybody of nobody", () -> admin.removeMembersFromConsumerGroup("live", everybody).all().get());
            show("delete what is empty now", () -> each(admin.deleteConsumerGroups(
                List.of("live", "static", "idle")).deletedGroups(), done -> "deleted"));
            show("list at last", () -> admin.listGroups().all().get());
        }
    }

    // Consumers.

    static class Consumers {
        final String bootstrap;
        final List<KafkaConsumer<byte[], byte[]>> all = new ArrayList<>();
        int revoked;

        Consumers(String bootstrap) {
            this.bootstrap = bootstrap;
        }

        void run(List<String> stories) {
            String base = "org.apache.kafka.clients.consumer.";
            for (String story : stories)
                switch (story) {
                    case "upgrade" -> upgrade(base);
                    case "static" -> staticMember(base + "RangeAssignor");
                    default -> comeAndGo("java-" + story, base + story);
                }
        }

        KafkaConsumer<byte[], byte[]> consumer(String group, String assignor, String instance) {
            Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", "classic",
                "partition.assignment.strategy", assignor, "enable.auto.commit", false,
                "auto.offset.reset", "earliest", "session.timeout.ms", 10_000, "heartbeat.interval.ms", 100,
                "client.id", group + "-" + all.size()));
            settings.put("key.deserializer", ByteArrayDeserializer.class);
            settings.put("value.deserializer", ByteArrayDeserializer.class);
            settings.put("fetch.max.wait.ms", 100);
            settings.put("retry.backoff.ms", 20);
            if (instance != null)
                settings.put("group.instance.id", instance);
            KafkaConsumer<byte[], byte[]> made = new KafkaConsumer<>(settings);
            made.subscribe(List.of("orders", "payments"), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    revoked += partitions.size();
                }

                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                }
            });
            all.add(made);
            return made;
        }

        void until(String what, BooleanSupplier isSo) {
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (!isSo.getAsBoolean()) {
                if (System.nanoTime() > deadline)
                    throw new IllegalStateException("not " + what + ": " + shares());
                for (KafkaConsumer<byte[], byte[]> each : all)
                    each.poll(Duration.ofMillis(20));
            }
            System.out.println(what + ": " + shares() + " of " + covered());
        }

        List<Integer> shares() {
            return all.stream().map(each -> each.assignment().size()).sorted().toList();
        }

        Set<String> covered() {
            return all.stream().flatMap(each -> each.assignment().stream()).map(Object::toString)
                .collect(Collectors.toCollection(TreeSet::new));
        }

        boolean isShared(int... wanted) {
            List<Integer> shares = new ArrayList<>();
            for (int each : wanted)
                shares.add(each);
            return shares().equals(shares) && covered().size() == 5;
        }

        /** A rebalance that is under way comes to its end, and what a rebalance would change is seen. */
        void settle() {
            for (int i = 0; i < 20; i++)
                for (KafkaConsumer<byte[], byte[]> each : all)
                    each.poll(Duration.ofMillis(20));
        }

        void close() {
            for (KafkaConsumer<byte[], byte[]> each : all)
                each.close(CloseOptions.timeout(Duration.ofSeconds(5)));
            all.clear();
        }

        void comeAndGo(String group, String assignor) {
            System.out.println("== " + group);
            KafkaConsumer<byte[], byte[]> first = consumer(group, assignor, null);
            until("alone", () -> isShared(5));
            consumer(group, assignor, null);
            until("two", () -> isShared(2, 3));
            consumer(group, assignor, null);
            until("three", () -> isShared(1, 2, 2));
            TopicPartition mine = first.assignment().iterator().next();
            first.commitSync(Map.of(mine, new OffsetAndMetadata(3, Optional.of(0), "so far")));
            System.out.println("committed: " + first.committed(Set.of(mine)).get(mine));
            TopicPartition other = all.get(1).assignment().iterator().next();
            all.get(1).commitSync(Map.of(other, new OffsetAndMetadata(1)));
            System.out.println("position: " + first.position(mine));
            System.out.println("beginning and end: " + first.beginningOffsets(Set.of(mine)).get(mine) + " "
                + first.endOffsets(Set.of(mine)).get(mine));
            all.remove(1).close();
            until("one has left", () -> isShared(2, 3));
            first.enforceRebalance("because");
            until("rebalanced for a reason", () -> isShared(2, 3));
            System.out.println("metadata: " + first.groupMetadata().groupInstanceId());
            try {
                first.commitSync(Map.of(new TopicPartition("never", 0), new OffsetAndMetadata(1)), Duration.ofSeconds(1));
                System.out.println("committed to no topic");
            } catch (Exception refused) {
                System.out.println("to no topic: " + refused.getClass().getSimpleName());
            }
            close();
        }

        /** From one strategy to another while the group is up, as an upgrade of its programs does it. */
        void upgrade(String base) {
            System.out.println("== upgrade");
            String both = base + "CooperativeStickyAssignor," + base + "RangeAssignor";
            consumer("java-upgrade", base + "RangeAssignor", null);
            until("range", () -> isShared(5));
            consumer("java-upgrade", both, null);
            until("one of each", () -> isShared(2, 3));
            all.remove(0).close();
            until("the old one has left", () -> isShared(5));
            consumer("java-upgrade", both, null);
            until("two new ones", () -> isShared(2, 3));
            try {
                KafkaConsumer<byte[], byte[]> stranger = consumer("java-upgrade", base + "RoundRobinAssignor", null);
                for (int i = 0; i < 50; i++)
                    stranger.poll(Duration.ofMillis(50));
                System.out.println("a stranger was let in");
            } catch (Exception refused) {
                System.out.println("a stranger: " + refused.getClass().getSimpleName() + " " + refused.getMessage());
            }
            close();
        }

        void staticMember(String assignor) {
            System.out.println("== static");
            consumer("java-static", assignor, "one");
            consumer("java-static", assignor, "two");
            until("both", () -> isShared(2, 3));
            settle();
            Set<TopicPartition> had = Set.copyOf(all.get(1).assignment());
            int generation = all.get(0).groupMetadata().generationId();
            int before = revoked;
            all.remove(1).close();
            settle();
            KafkaConsumer<byte[], byte[]> again = consumer("java-static", assignor, "two");
            until("both again", () -> isShared(2, 3));
            System.out.println("the same: " + had.equals(again.assignment()) + ", generation went up by "
                + (all.get(0).groupMetadata().generationId() - generation) + ", revoked of the other: "
                + (revoked - before - had.size()));
            KafkaConsumer<byte[], byte[]> twin = consumer("java-static", assignor, "one");
            all.remove(twin);
            try {
                long deadline = System.nanoTime() + WAIT.toNanos();
                while (System.nanoTime() < deadline) {
                    twin.poll(Duration.ofMillis(20));
                    all.get(0).poll(Duration.ofMillis(20));
                }
                System.out.println("nobody was fenced");
            } catch (Exception fenced) {
                System.out.println("of twins one: " + fenced.getClass().getSimpleName());
            }
            twin.close(CloseOptions.timeout(Duration.ofSeconds(1)));
            close();
        }
    }
}
