import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerBusyException;
import org.apache.pulsar.client.api.PulsarClientException.ProducerFencedException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** The scenarios that all official clients go through. */
final class Scenarios {
    private Scenarios() {}

    static void registerAll() {
        Program.register("produce_consume", Scenarios::produceConsume);
        Program.register("batches", Scenarios::batches);
        Program.register("compression", Scenarios::compression);
        Program.register("partitioned", Scenarios::partitioned);
        Program.register("shared", Scenarios::shared);
        Program.register("failover", Scenarios::failover);
        Program.register("key_shared", Scenarios::keyShared);
        Program.register("access_modes", Scenarios::accessModes);
        Program.register("delayed", Scenarios::delayed);
        Program.register("negative_ack", Scenarios::negativeAck);
        Program.register("ack_timeout", Scenarios::ackTimeout);
        Program.register("dead_letters", Scenarios::deadLetters);
        Program.register("reader", Scenarios::reader);
        Program.register("seek", Scenarios::seek);
        Program.register("pattern", Scenarios::pattern);
        Program.register("table_view", Scenarios::tableView);
        Program.register("chunked", Scenarios::chunked);
        Program.register("deduplication", Scenarios::deduplication);
        Program.register("owner_killed", Scenarios::ownerKilled);
    }

    private static void produceConsume(World world) throws Exception {
        Producer<String> producer = world.producer().property("of", "producer").create();
        List<MessageId> ids = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            ids.add(producer.newMessage().value("m" + number).property("n", "" + number).key("k" + number).eventTime(number + 1).send());
        }
        World.same(new HashSet<>(ids).size(), 100);
        Consumer<String> consumer = world.consumer().isAckReceiptEnabled(true).acknowledgmentGroupTime(0, TimeUnit.SECONDS).subscribe();
        List<Message<String>> messages = World.take(consumer, 100);
        for (int number = 0; number < 100; number++) {
            Message<String> message = messages.get(number);
            World.same(message.getValue(), "m" + number);
            World.same(message.getProperties(), Map.of("n", "" + number));
            World.same(message.getKey(), "k" + number);
            World.same(message.getEventTime(), number + 1L);
            World.same(message.getMessageId().compareTo(ids.get(number)), 0);
        }
        World.nothingMore(consumer);
        World.same(consumer.getLastMessageIds().get(0).compareTo(ids.get(99)), 0);
        consumer.close();
        // What was acknowledged does not come again.
        World.nothingMore(world.consumer().subscribe());
    }

    private static void batches(World world) throws Exception {
        Producer<String> producer = world.producer()
                .enableBatching(true)
                .batchingMaxPublishDelay(10, TimeUnit.MILLISECONDS)
                .batchingMaxMessages(50)
                .blockIfQueueFull(true)
                .create();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 2_000; number++) {
            sent.add(producer.sendAsync(Integer.toString(number)));
        }
        producer.flush();
        CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get(30, TimeUnit.SECONDS);
        ConsumerBuilder<String> builder = world.consumer().enableBatchIndexAcknowledgment(true);
        Consumer<String> consumer = builder.clone().subscribe();
        World.same(World.values(World.takeUnacknowledged(consumer, 2_000)), World.range(0, 2_000));
        consumer.close();
        consumer = builder.clone().subscribe();
        List<Message<String>> messages = World.takeUnacknowledged(consumer, 2_000);
        for (Message<String> message : messages.subList(0, 125)) { // two batches and a half, if they were full
            consumer.acknowledge(message);
        }
        consumer.close();
        consumer = builder.clone().subscribe();
        World.same(World.values(World.takeUnacknowledged(consumer, 1_875)), World.range(125, 2_000));
        consumer.acknowledgeCumulative(messages.get(1_999));
        consumer.close();
        World.nothingMore(world.consumer().subscribe());
    }

    private static void compression(World world) throws Exception {
        Consumer<String> consumer = world.consumer().subscribe();
        String text = "abc".repeat(5_000);
        for (CompressionType kind : CompressionType.values()) {
            for (boolean batching : new boolean[] {false, true}) {
                Producer<String> producer = world.producer().compressionType(kind).enableBatching(batching).create();
                for (int number = 0; number < 5; number++) {
                    producer.sendAsync(text);
                }
                producer.flush();
                producer.close();
                World.same(World.values(World.take(consumer, 5)), Collections.nCopies(5, text));
            }
        }
    }

    private static void partitioned(World world) throws Exception {
        world.admin().topics().createPartitionedTopic(world.topic, 4);
        World.same(world.client.getPartitionsForTopic(world.topic, false).get().size(), 4);
        Producer<String> producer = world.producer().enableBatching(true).hashingScheme(HashingScheme.Murmur3_32Hash).create();
        for (int number = 0; number < 200; number++) {
            producer.newMessage().value(Integer.toString(number)).key("key-" + number % 10).sendAsync();
        }
        producer.flush();
        Consumer<String> consumer = world.consumer().autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe();
        Map<String, List<Integer>> byKey = new HashMap<>();
        Map<String, Set<String>> partitions = new HashMap<>();
        Set<String> all = new HashSet<>();
        for (Message<String> message : World.take(consumer, 200)) {
            byKey.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(Integer.valueOf(message.getValue()));
            partitions.computeIfAbsent(message.getKey(), key -> new HashSet<>()).add(message.getTopicName());
            all.add(message.getTopicName());
        }
        for (List<Integer> numbers : byKey.values()) {
            World.same(numbers, numbers.stream().sorted().toList());
        }
        for (Set<String> each : partitions.values()) {
            World.same(each.size(), 1);
        }
        World.isTrue(all.size() > 1, "keys went to more than one partition");
        World.nothingMore(consumer);
        // Partitions that are added are found by a consumer that is there.
        world.admin().topics().updatePartitionedTopic(world.topic, 6);
        Producer<String> last = world.producer(world.topic + "-partition-5").create();
        last.send("new");
        World.same(World.values(World.take(consumer, 1)), List.of("new"));
    }

    private static void shared(World world) throws Exception {
        ConsumerBuilder<String> builder = world.consumer().subscriptionType(SubscriptionType.Shared).receiverQueueSize(10);
        List<Consumer<String>> consumers = List.of(builder.clone().subscribe(), builder.clone().subscribe());
        World.send(world.producer().create(), 0, 100);
        List<List<Integer>> got = takeAll(consumers);
        World.isTrue(!got.get(0).isEmpty() && !got.get(1).isEmpty(), "both consumers got something");
        List<Integer> both = new ArrayList<>(got.get(0));
        both.addAll(got.get(1));
        World.same(both.stream().sorted().map(Object::toString).toList(), World.range(0, 100));
    }

    /** All that comes, by consumer, until nothing comes any more. */
    private static List<List<Integer>> takeAll(List<Consumer<String>> consumers) throws Exception {
        List<List<Integer>> got = new ArrayList<>();
        for (int index = 0; index < consumers.size(); index++) {
            got.add(new ArrayList<>());
        }
        for (int quiet = 0; quiet < 20 * consumers.size(); ) {
            for (int index = 0; index < consumers.size(); index++) {
                Message<String> message = consumers.get(index).receive(20, TimeUnit.MILLISECONDS);
                if (message == null) {
                    quiet++;
                    continue;
                }
                quiet = 0;
                got.get(index).add(Integer.valueOf(message.getValue()));
                consumers.get(index).acknowledge(message);
            }
        }
        return got;
    }

    private static void failover(World world) throws Exception {
        AtomicReference<String> active = new AtomicReference<>("");
        ConsumerEventListener listener = new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partition) {
                active.set(consumer.getConsumerName());
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partition) {}
        };
        ConsumerBuilder<String> builder = world.consumer().subscriptionType(SubscriptionType.Failover).consumerEventListener(listener);
        Consumer<String> first = builder.clone().consumerName("a").subscribe();
        World.until("the first is active", () -> active.get().equals("a"));
        World.send(world.producer().create(), 0, 20);
        World.same(World.values(World.take(first, 10)), World.range(0, 10));
        Consumer<String> second = builder.clone().consumerName("b").subscribe();
        World.nothingMore(second);
        first.close();
        World.same(World.values(World.take(second, 10)), World.range(10, 20));
        World.nothingMore(second);
        World.same(active.get(), "b");
    }

    private static void keyShared(World world) throws Exception {
        ConsumerBuilder<String> builder = world.consumer().subscriptionType(SubscriptionType.Key_Shared);
        List<Consumer<String>> consumers = new ArrayList<>(List.of(builder.clone().subscribe(), builder.clone().subscribe()));
        Producer<String> producer = world.producer().enableBatching(true).batcherBuilder(BatcherBuilder.KEY_BASED).create();
        for (int number = 0; number < 400; number++) {
            producer.newMessage().value(Integer.toString(number)).key("key-" + number % 20).sendAsync();
        }
        producer.flush();
        List<List<Integer>> got = takeAll(consumers);
        Set<Integer> keys = new TreeSet<>();
        Set<Integer> all = new TreeSet<>();
        for (List<Integer> numbers : got) {
            World.isTrue(!numbers.isEmpty(), "each consumer got something");
            Map<Integer, Integer> last = new TreeMap<>();
            for (int number : numbers) {
                Integer before = last.put(number % 20, number);
                World.isTrue(before == null || before < number, "a key's messages come in order");
            }
            for (int key : last.keySet()) {
                World.isTrue(keys.add(key), "a key comes to one consumer");
            }
            all.addAll(numbers);
        }
        World.same(all.size(), 400);
        // Who leaves gives its keys to who stays, with what it had not acknowledged.
        for (int number = 0; number < 40; number++) {
            producer.newMessage().value(Integer.toString(number)).key("key-" + number % 20).sendAsync();
        }
        producer.flush();
        World.takeUnacknowledged(consumers.get(0), 1);
        consumers.remove(0).close();
        List<Integer> rest = takeAll(consumers).get(0);
        World.same(new TreeSet<>(rest).size(), 40);
    }

    private static void accessModes(World world) throws Exception {
        Producer<String> alone = world.producer().accessMode(ProducerAccessMode.Exclusive).create();
        World.refused(ProducerFencedException.class, () -> world.producer().accessMode(ProducerAccessMode.Exclusive).create());
        World.refused(ProducerBusyException.class, () -> world.producer().create());
        CompletableFuture<Producer<String>> waiting = world.producer().accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        alone.send("alone");
        World.same(waiting.isDone(), false);
        alone.close();
        Producer<String> waited = waiting.get(30, TimeUnit.SECONDS);
        waited.send("waited");
        Producer<String> fencing = world.producer().accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        fencing.send("fencing");
        World.refused(PulsarClientException.class, () -> waited.send("late"));
        World.same(World.values(World.take(world.consumer().subscribe(), 3)), List.of("alone", "waited", "fencing"));
    }

    private static void delayed(World world) throws Exception {
        Consumer<String> consumer = world.consumer().subscriptionType(SubscriptionType.Shared).subscribe();
        Consumer<String> ordered = world.consumer().subscriptionName("ordered").subscribe();
        Producer<String> producer = world.producer().create();
        long began = System.currentTimeMillis();
        // The first one is not due before all are there.
        producer.newMessage().value("late").deliverAfter(9, TimeUnit.SECONDS).send();
        producer.newMessage().value("at").deliverAt(began + 8_000).send();
        producer.send("now");
        World.same(World.values(World.take(consumer, 1)), List.of("now"));
        World.same(World.values(World.take(ordered, 3)), List.of("late", "at", "now"));
        World.same(World.values(World.take(consumer, 1)), List.of("at"));
        World.isTrue(System.currentTimeMillis() - began >= 8_000, "the message does not come before its time");
        World.same(World.values(World.take(consumer, 1)), List.of("late"));
        World.isTrue(System.currentTimeMillis() - began >= 9_000, "the message does not come before its time");
    }

    private static void negativeAck(World world) throws Exception {
        Consumer<String> consumer = world.consumer()
                .subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(300, TimeUnit.MILLISECONDS)
                .subscribe();
        World.send(world.producer().create(), 0, 10);
        for (Message<String> message : World.takeUnacknowledged(consumer, 10)) {
            if (Integer.parseInt(message.getValue()) % 2 == 0) {
                consumer.acknowledge(message);
            } else {
                consumer.negativeAcknowledge(message);
            }
        }
        List<Message<String>> again = World.take(consumer, 5);
        World.same(again.stream().map(Message::getValue).sorted().toList(), List.of("1", "3", "5", "7", "9"));
        World.same(new HashSet<>(again.stream().map(Message::getRedeliveryCount).toList()), Set.of(1));
        World.nothingMore(consumer, 600);
    }

    private static void ackTimeout(World world) throws Exception {
        Consumer<String> consumer = world.consumer()
                .subscriptionType(SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS)
                .ackTimeoutTickTime(200, TimeUnit.MILLISECONDS)
                .subscribe();
        World.send(world.producer().create(), 0, 3);
        World.takeUnacknowledged(consumer, 3);
        World.same(World.values(World.take(consumer, 3)).stream().sorted().toList(), World.range(0, 3));
    }

    private static void deadLetters(World world) throws Exception {
        String deadTopic = world.topic + "-dead";
        Consumer<String> consumer = world.consumer()
                .subscriptionName("work")
                .subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(2)
                        .deadLetterTopic(deadTopic)
                        .initialSubscriptionName("initial")
                        .build())
                .subscribe();
        Producer<String> producer = world.producer().create();
        producer.newMessage().value("poison").property("why", "bad").send();
        producer.send("good");
        Consumer<String> graves = world.consumer(deadTopic).subscriptionName("graves").subscribe();
        int attempts = 0;
        Message<String> dead = null;
        for (int round = 0; dead == null && round < 100; round++) {
            Message<String> message = consumer.receive(300, TimeUnit.MILLISECONDS);
            if (message == null) {
                dead = graves.receive(300, TimeUnit.MILLISECONDS);
            } else if (message.getValue().equals("poison")) {
                attempts++;
                consumer.negativeAcknowledge(message);
            } else {
                consumer.acknowledge(message);
            }
        }
        World.isTrue(dead != null, "a dead letter comes");
        World.same(List.of(dead.getValue(), dead.getProperty("why"), attempts), List.of("poison", "bad", 3));
        // The policy's initial subscription was made with the topic, so that nothing dead is lost.
        Consumer<String> initial = world.consumer(deadTopic).subscriptionName("initial").subscribe();
        World.same(World.values(World.take(initial, 1)), List.of("poison"));
    }

    private static void reader(World world) throws Exception {
        Producer<String> producer = world.producer()
                .enableBatching(true)
                .batchingMaxMessages(10)
                .batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                .create();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            sent.add(producer.sendAsync(Integer.toString(number)));
        }
        producer.flush();
        Reader<String> whole = readerAt(world, MessageId.earliest);
        List<String> read = new ArrayList<>();
        while (whole.hasMessageAvailable()) {
            read.add(next(whole));
        }
        World.same(read, World.range(0, 100));
        World.same(next(readerAt(world, sent.get(41).get())), "42");
        Reader<String> latest = readerAt(world, MessageId.latest);
        World.same(latest.hasMessageAvailable(), false);
        producer.send("new");
        World.same(next(latest), "new");
        whole.seek(sent.get(9).get());
        World.same(next(whole), "10");
        whole.seek(MessageId.earliest);
        World.same(next(whole), "0");
    }

    private static Reader<String> readerAt(World world, MessageId start) throws Exception {
        return world.client.newReader(Schema.STRING).topic(world.topic).startMessageId(start).create();
    }

    private static String next(Reader<String> reader) throws Exception {
        Message<String> message = reader.readNext(World.RECEIVE_SECONDS, TimeUnit.SECONDS);
        World.isTrue(message != null, "the reader has a next message");
        return message.getValue();
    }

    private static void seek(World world) throws Exception {
        Producer<String> producer = world.producer().create();
        List<MessageId> ids = new ArrayList<>();
        List<Long> times = new ArrayList<>();
        for (int number = 0; number < 50; number++) {
            times.add(System.currentTimeMillis());
            ids.add(producer.send(Integer.toString(number)));
            Thread.sleep(2);
        }
        Consumer<String> consumer = world.consumer().startMessageIdInclusive().subscribe();
        World.take(consumer, 50);
        consumer.seek(ids.get(20));
        World.same(World.values(World.take(consumer, 30)), World.range(20, 50));
        consumer.seek(times.get(30));
        World.same(World.values(World.take(consumer, 20)), World.range(30, 50));
        consumer.seek(MessageId.earliest);
        World.same(World.values(World.takeUnacknowledged(consumer, 1)), List.of("0"));
        consumer.seek(MessageId.latest);
        World.nothingMore(consumer);
        producer.send("after");
        World.same(World.values(World.take(consumer, 1)), List.of("after"));
    }

    private static void pattern(World world) throws Exception {
        Producer<String> a = world.producer(world.topic + "-a").create();
        Producer<String> other = world.producer(world.topic + "-other").create();
        Consumer<String> consumer = world.anyTopic()
                .topicsPattern(Pattern.compile(world.topic + "-[a-c]"))
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscribe();
        a.send("a");
        other.send("other");
        World.same(World.values(World.take(consumer, 1)), List.of("a"));
        world.producer(world.topic + "-b").create().send("b");
        World.same(World.values(World.take(consumer, 1)), List.of("b"));
        World.nothingMore(consumer);
    }

    private static void tableView(World world) throws Exception {
        Producer<String> producer = world.producer().enableBatching(true).create();
        for (int number = 0; number < 20; number++) {
            producer.newMessage().value(Integer.toString(number)).key("k" + number % 5).send();
        }
        try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(world.topic).create()) {
            World.same(Map.of("k0", view.get("k0"), "k4", view.get("k4")), Map.of("k0", "15", "k4", "19"));
            World.same(view.size(), 5);
            producer.newMessage().value("new").key("k0").send();
            World.until("the view has the new value", () -> view.get("k0").equals("new"));
        }
    }

    private static void chunked(World world) throws Exception {
        Producer<byte[]> producer = world.client.newProducer().topic(world.topic).enableBatching(false).enableChunking(true).create();
        byte[] big = new byte[20 << 20];
        new Random(1).nextBytes(big);
        MessageId id = producer.send(big);
        producer.send("small".getBytes());
        Consumer<byte[]> consumer = world.client.newConsumer()
                .topic(world.topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(org.apache.pulsar.client.api.SubscriptionInitialPosition.Earliest)
                .subscribe();
        List<Message<byte[]>> messages = World.take(consumer, 2);
        World.isTrue(Arrays.equals(messages.get(0).getValue(), big), "the big message came as it was sent");
        World.same(new String(messages.get(1).getValue()), "small");
        World.same(messages.get(0).getMessageId().compareTo(id), 0);
    }

    private static void deduplication(World world) throws Exception {
        world.producer().create().close();
        world.admin().topicPolicies().setDeduplicationStatus(world.topic, true);
        World.until("deduplication is on", () -> "Enabled".equals(world.admin().topics().getStats(world.topic).getDeduplicationStatus()));
        Producer<String> producer = world.producer().producerName("exact").initialSequenceId(-1).create();
        for (int number : new int[] {0, 1, 2, 1, 2, 3}) {
            producer.newMessage().value(Integer.toString(number)).sequenceId(number).send();
        }
        World.same(producer.getLastSequenceId(), 3L);
        producer.close();
        producer = world.producer().producerName("exact").create();
        World.same(producer.getLastSequenceId(), 3L);
        Consumer<String> consumer = world.consumer().subscribe();
        World.same(World.values(World.take(consumer, 4)), World.range(0, 4));
        World.nothingMore(consumer);
    }

    private static void ownerKilled(World world) throws Exception {
        Producer<String> producer = world.producer()
                .enableBatching(true)
                .batchingMaxMessages(10)
                .blockIfQueueFull(true)
                .sendTimeout(0, TimeUnit.SECONDS)
                .create();
        Consumer<String> consumer = world.consumer().subscribe();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 10_000; number++) {
            sent.add(producer.sendAsync(Integer.toString(number)));
            if (number == 3_000) {
                Program.say("KILL");
            }
            if (number % 2 == 0) {
                Thread.sleep(1);
            }
        }
        producer.flush();
        CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get(60, TimeUnit.SECONDS);
        Set<String> firstSeen = new LinkedHashSet<>();
        while (firstSeen.size() < 10_000) {
            firstSeen.addAll(World.values(World.take(consumer, 1)));
        }
        World.same(new ArrayList<>(firstSeen), World.range(0, 10_000));
    }
}
