import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TableView;

/** Compaction, asked for with the admin client and read compacted by readers, consumers and table views. */
final class CompactionScenarios {
    private CompactionScenarios() {}

    static void registerAll() {
        Program.register("compacted", CompactionScenarios::compacted);
    }

    private static void compact(World world) throws Exception {
        PulsarAdmin admin = world.admin();
        World.same(admin.topics().compactionStatus(world.topic).status, LongRunningProcessStatus.Status.NOT_RUN);
        admin.topics().triggerCompaction(world.topic);
        World.until("compaction has ended", () ->
                admin.topics().compactionStatus(world.topic).status == LongRunningProcessStatus.Status.SUCCESS);
        World.same(admin.topics().getStats(world.topic).getCompaction().getLastCompactionRemovedEventCount(), 18L);
    }

    private static List<String> read(Reader<String> reader) throws Exception {
        List<String> found = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<String> message = reader.readNext(World.RECEIVE_SECONDS, TimeUnit.SECONDS);
            found.add(message.getKey() + "=" + message.getValue());
        }
        return found;
    }

    private static void compacted(World world) throws Exception {
        PulsarAdmin admin = world.admin();
        Producer<String> batched = world.client.newProducer(Schema.STRING)
                .topic(world.topic)
                .enableBatching(true)
                .batchingMaxPublishDelay(1, TimeUnit.MINUTES) // one batch, which the flush ends
                .compressionType(CompressionType.LZ4)
                .create();
        for (int number = 0; number < 20; number++) {
            batched.newMessage().value("" + number).key("k" + number % 5).sendAsync();
        }
        batched.flush();
        Producer<String> single = world.client.newProducer(Schema.STRING).topic(world.topic).enableBatching(false).create();
        single.newMessage().value(null).key("k1").send();
        single.newMessage().value("new").key("k2").send();
        compact(world);
        // The log is emptied: only the view has them.
        admin.topics().unload(world.topic);
        admin.topics().trimTopic(world.topic);
        World.same(admin.topics().getInternalStats(world.topic).numberOfEntries, 0L);
        World.same(admin.topics().getInternalStats(world.topic).compactedLedger.entries, 3L);
        List<String> values = List.of("k0=15", "k3=18", "k4=19", "k2=new");
        Reader<String> reader = world.client.newReader(Schema.STRING)
                .topic(world.topic)
                .startMessageId(MessageId.earliest)
                .readCompacted(true)
                .create();
        World.same(read(reader), values);
        single.newMessage().value("late").key("k0").send();
        World.same(read(reader), List.of("k0=late"));
        reader.seek(MessageId.earliest);
        World.same(read(reader), List.of("k0=15", "k3=18", "k4=19", "k2=new", "k0=late"));
        reader.close();
        Consumer<String> consumer = world.client.newConsumer(Schema.STRING)
                .topic(world.topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .readCompacted(true)
                .subscribe();
        World.same(World.values(World.take(consumer, 5)), List.of("15", "18", "19", "new", "late"));
        World.nothingMore(consumer);
        consumer.close();
        try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(world.topic).create()) {
            World.same(Map.copyOf(Map.of("k0", view.get("k0"), "k2", view.get("k2"))), Map.of("k0", "late", "k2", "new"));
            World.same(view.containsKey("k1"), false);
            World.same(view.size(), 4);
        }
        admin.namespaces().setCompactionThreshold("public/default", 1 << 30);
        World.same(admin.namespaces().getCompactionThreshold("public/default"), 1L << 30);
        World.same(admin.topicPolicies().getCompactionThreshold(world.topic, true), 1L << 30);
        admin.namespaces().removeCompactionThreshold("public/default");
        admin.topicPolicies().setCompactionThreshold(world.topic, 5_000_000L);
        World.same(admin.topicPolicies().getCompactionThreshold(world.topic), 5_000_000L);
        admin.topicPolicies().removeCompactionThreshold(world.topic);
    }
}
