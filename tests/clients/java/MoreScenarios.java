import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.admin.ListNamespaceTopicsOptions;
import org.apache.pulsar.client.admin.Mode;
import org.apache.pulsar.common.policies.data.NonPersistentTopicStats;

/** What only the Java client can be asked for, or what one client is enough for. */
final class MoreScenarios {
    private MoreScenarios() {}

    static void registerAll() {
        Program.register("non_persistent", MoreScenarios::nonPersistent);
        Program.register("zero_queue", MoreScenarios::zeroQueue);
        Program.register("retry_letters", MoreScenarios::retryLetters);
        Program.register("unloaded", MoreScenarios::unloaded);
        Program.register("several_topics", MoreScenarios::severalTopics);
        Program.register("transactions_refused", MoreScenarios::transactionsRefused);
    }

    @SuppressWarnings("deprecation") // older programs ask by these names
    private static void nonPersistent(World world) throws Exception {
        String topic = world.topic.replace("persistent://", "non-persistent://");
        List<Consumer<String>> consumers = new ArrayList<>();
        for (SubscriptionType type : SubscriptionType.values()) {
            consumers.add(world.consumer(topic).subscriptionName(type.name()).subscriptionType(type).subscribe());
        }
        Producer<String> producer = world.producer(topic).create();
        World.send(producer, 0, 100);
        Producer<String> batching = world.producer(topic).enableBatching(true).batchingMaxMessages(10).create();
        World.send(batching, 100, 120);
        for (Consumer<String> consumer : consumers) {
            World.same(World.values(World.take(consumer, 120)), World.range(0, 120));
            World.nothingMore(consumer);
        }
        World.nothingMore(world.consumer(topic).subscriptionName("late").subscribe());
        try (Reader<String> reader = world.client.newReader(Schema.STRING).topic(topic).startMessageId(MessageId.earliest).create()) {
            producer.send("last");
            World.same(reader.readNext(World.RECEIVE_SECONDS, TimeUnit.SECONDS).getValue(), "last");
        }
        // The admin client's own words for such topics.
        NonPersistentTopicStats stats = world.admin().nonPersistentTopics().getStats(topic);
        World.same(stats.getMsgInCounter(), 121L);
        World.same(stats.getPublishers().size(), 2);
        World.same(stats.getSubscriptions().containsKey("Shared"), true);
        World.isTrue(world.admin().nonPersistentTopics().getList("public/default").contains(topic), "it is listed");
        World.isTrue(world.admin().namespaces().getTopics("public/default", ListNamespaceTopicsOptions.builder().mode(Mode.NON_PERSISTENT).build())
                .contains(topic), "it is listed in its namespace");
        // Patterns find them where they are asked to.
        Consumer<String> pattern = world.anyTopic().topicsPattern(topic.replace("default/", "default/.*"))
                .subscriptionName("pattern").subscriptionTopicsMode(RegexSubscriptionMode.NonPersistentOnly).subscribe();
        producer.send("found");
        World.same(World.values(World.take(pattern, 1)), List.of("found"));
    }

    private static void zeroQueue(World world) throws Exception {
        Consumer<String> first = world.consumer().subscriptionType(SubscriptionType.Shared).receiverQueueSize(0).subscribe();
        Consumer<String> second = world.consumer().subscriptionType(SubscriptionType.Shared).receiverQueueSize(0).subscribe();
        World.send(world.producer().create(), 0, 10);
        List<String> got = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            for (Consumer<String> consumer : List.of(first, second)) {
                Message<String> message = consumer.receive();
                got.add(message.getValue());
                consumer.acknowledge(message);
            }
        }
        World.same(got, World.range(0, 10));
    }

    private static void retryLetters(World world) throws Exception {
        Consumer<String> consumer = world.consumer()
                .subscriptionType(SubscriptionType.Shared)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build())
                .subscribe();
        world.producer().create().send("later");
        long began = System.currentTimeMillis();
        for (int attempt = 0; attempt < 3; attempt++) {
            Message<String> message = World.takeUnacknowledged(consumer, 1).get(0);
            World.isTrue(System.currentTimeMillis() - began >= 500L * attempt, "a retry does not come before its time");
            consumer.reconsumeLater(message, 500, TimeUnit.MILLISECONDS);
        }
        Consumer<String> dead = world.consumer(world.topic + "-s-DLQ").subscribe();
        World.same(World.values(World.take(dead, 1)), List.of("later"));
    }

    private static void unloaded(World world) throws Exception {
        Producer<String> producer = world.producer().enableBatching(true).batchingMaxMessages(10).blockIfQueueFull(true).create();
        Consumer<String> consumer = world.consumer().subscribe();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int number = 0; number < 2_000; number++) {
            sent.add(producer.sendAsync(Integer.toString(number)));
            if (number % 500 == 250) {
                world.admin().topics().unload(world.topic);
            }
        }
        CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get(30, TimeUnit.SECONDS);
        List<String> order = new ArrayList<>();
        HashSet<String> seen = new HashSet<>();
        while (order.size() < 2_000) {
            String value = World.take(consumer, 1).get(0).getValue();
            if (seen.add(value)) {
                order.add(value);
            }
        }
        World.same(order, World.range(0, 2_000));
    }

    private static void severalTopics(World world) throws Exception {
        Consumer<String> consumer = world.anyTopic().topics(List.of(world.topic + "-a", world.topic + "-b")).subscribe();
        for (String name : List.of("a", "b")) {
            world.producer(world.topic + "-" + name).create().send(name);
        }
        World.same(new HashSet<>(World.values(World.take(consumer, 2))), new HashSet<>(List.of("a", "b")));
        consumer.seek(MessageId.earliest);
        World.same(World.take(consumer, 2).size(), 2);
        consumer.unsubscribe();
        World.same(world.admin().topics().getSubscriptions(world.topic + "-a"), List.of());
    }

    private static void transactionsRefused(World world) throws Exception {
        PulsarClientException error = World.refused(PulsarClientException.class, () -> PulsarClient.builder()
                .serviceUrl(world.serviceUrl).enableTransaction(true).operationTimeout(5, TimeUnit.SECONDS).build());
        World.isTrue(error.toString().contains("transactions are not supported"), "the client is told why: " + error);
    }
}
