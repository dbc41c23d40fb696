import static org.apache.pulsar.client.admin.PulsarAdminException.ConflictException;
import static org.apache.pulsar.client.admin.PulsarAdminException.NotFoundException;
import static org.apache.pulsar.client.admin.PulsarAdminException.PreconditionFailedException;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Schemas;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AutoSubscriptionCreationOverride;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.BacklogQuota.BacklogQuotaType;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.InactiveTopicDeleteMode;
import org.apache.pulsar.common.policies.data.InactiveTopicPolicies;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PersistentTopicInternalStats;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SubscriptionStats;
import org.apache.pulsar.common.policies.data.TenantInfo;
import org.apache.pulsar.common.naming.TopicVersion;
import org.apache.pulsar.common.policies.data.TopicStats;
import org.apache.pulsar.common.policies.data.TopicType;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** Apache Pulsar's admin client against the HTTP side: what is answered is read by its typed classes, what is refused by its exceptions. */
final class AdminScenarios {
    private AdminScenarios() {}

    static void registerAll() {
        Program.register("admin_tenants", AdminScenarios::tenants);
        Program.register("admin_topics", AdminScenarios::topics);
        Program.register("admin_partitions", AdminScenarios::partitions);
        Program.register("admin_subscriptions", AdminScenarios::subscriptions);
        Program.register("admin_namespace_policies", AdminScenarios::namespacePolicies);
        Program.register("admin_topic_policies", AdminScenarios::topicPolicies);
        Program.register("admin_schemas", AdminScenarios::schemas);
        Program.register("admin_brokers", AdminScenarios::brokers);
    }

    /** All that does not hold is told together. */
    private static final class Findings {
        private final List<String> found = new ArrayList<>();

        void step(String what, World.Work work) {
            try {
                work.run();
            } catch (Throwable error) {
                found.add(what + ": " + error);
                error.printStackTrace();
            }
        }

        void none() {
            World.same(String.join("\n", found), "");
        }
    }

    private static String namespaceOf(World world) throws Exception {
        PulsarAdmin admin = world.admin();
        String tenant = world.name.replaceAll("[^a-zA-Z0-9-]", "-");
        if (!admin.tenants().getTenants().contains(tenant)) {
            admin.tenants().createTenant(tenant, TenantInfo.builder().allowedClusters(Set.copyOf(admin.clusters().getClusters())).build());
        }
        admin.namespaces().createNamespace(tenant + "/n");
        return tenant + "/n";
    }

    private static void tenants(World world) throws Exception {
        PulsarAdmin admin = world.admin();
        Set<String> clusters = Set.copyOf(admin.clusters().getClusters());
        World.same(clusters.size(), 1);
        String tenant = world.name.replace('_', '-');
        TenantInfo info = TenantInfo.builder().adminRoles(Set.of("role")).allowedClusters(clusters).build();
        admin.tenants().createTenant(tenant, info);
        World.same(admin.tenants().getTenantInfo(tenant), info);
        World.refused(ConflictException.class, () -> admin.tenants().createTenant(tenant, info));
        admin.tenants().updateTenant(tenant, TenantInfo.builder().adminRoles(Set.of("a", "b")).allowedClusters(clusters).build());
        World.same(admin.tenants().getTenantInfo(tenant).getAdminRoles(), Set.of("a", "b"));
        World.refused(NotFoundException.class, () -> admin.tenants().getTenantInfo(tenant + "-x"));
        World.refused(PreconditionFailedException.class, () -> admin.tenants().createTenant("not valid", info));

        String namespace = tenant + "/n";
        admin.namespaces().createNamespace(namespace, 8);
        World.same(admin.namespaces().getBundles(namespace).getNumBundles(), 8);
        World.same(admin.namespaces().getPolicies(namespace).bundles.getNumBundles(), 8);
        World.same(admin.namespaces().getNamespaces(tenant), List.of(namespace));
        World.refused(ConflictException.class, () -> admin.namespaces().createNamespace(namespace));
        World.refused(NotFoundException.class, () -> admin.namespaces().createNamespace(tenant + "-x/n"));
        World.refused(NotFoundException.class, () -> admin.namespaces().getPolicies(tenant + "/x"));
        World.refused(ConflictException.class, () -> admin.tenants().deleteTenant(tenant));
        admin.topics().createNonPartitionedTopic("persistent://" + namespace + "/t");
        World.refused(ConflictException.class, () -> admin.namespaces().deleteNamespace(namespace));
        admin.namespaces().deleteNamespace(namespace, true);
        World.same(admin.namespaces().getNamespaces(tenant), List.of());
        admin.tenants().deleteTenant(tenant);
        World.isTrue(!admin.tenants().getTenants().contains(tenant), "the tenant is gone");
    }

    private static void topics(World world) throws Exception {
        Topics topics = world.admin().topics();
        String topic = world.topic;
        topics.createNonPartitionedTopic(topic, Map.of("owner", "me"));
        World.same(topics.getProperties(topic), Map.of("owner", "me"));
        topics.updateProperties(topic, Map.of("more", "yes"));
        World.same(topics.getProperties(topic), Map.of("owner", "me", "more", "yes"));
        topics.removeProperties(topic, "owner");
        World.same(topics.getProperties(topic), Map.of("more", "yes"));
        World.refused(ConflictException.class, () -> topics.createNonPartitionedTopic(topic));
        World.isTrue(topics.getList("public/default").contains(topic), "the topic is listed");
        World.refused(NotFoundException.class, () -> topics.getStats(topic + "-x"));
        World.refused(NotFoundException.class, () -> topics.delete(topic + "-x"));

        Producer<String> producer = world.producer().producerName("p").create();
        Consumer<String> consumer = world.consumer().consumerName("c").subscribe();
        List<MessageId> ids = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            ids.add(producer.send(Integer.toString(number)));
        }
        World.take(consumer, 4);
        World.until("acknowledgements came", () -> topics.getStats(topic, true).getSubscriptions().get("s").getMsgBacklog() == 6);
        TopicStats stats = topics.getStats(topic, true, true, true);
        World.same(stats.getMsgInCounter(), 10L);
        World.same(stats.getPublishers().get(0).getProducerName(), "p");
        SubscriptionStats subscription = stats.getSubscriptions().get("s");
        World.same(List.of(subscription.getType(), subscription.getConsumers().get(0).getConsumerName()), List.of("Exclusive", "c"));
        PersistentTopicInternalStats inside = topics.getInternalStats(topic, true);
        World.same(inside.numberOfEntries, 10L);
        World.isTrue(inside.cursors.get("s").markDeletePosition.endsWith(":3"), "mark-delete " + inside.cursors.get("s").markDeletePosition);
        World.isTrue(topics.getInternalInfo(topic).contains("ledgers"), "the internal info names the ledgers");
        World.same(topics.getLastMessageId(topic).compareTo(ids.get(9)), 0);
        World.same(topics.getSubscriptions(topic), List.of("s"));

        World.same(world.admin().lookups().lookupTopic(topic).startsWith("pulsar://"), true);
        World.isTrue(world.admin().lookups().getBundleRange(topic).startsWith("0x"), "the bundle is a range");
        topics.unload(topic);
        producer.send("after");
        // What was given out and not acknowledged comes again from the new owner, beside what the client held of before.
        Message<String> last = World.take(consumer, 1).get(0);
        while (!last.getValue().equals("after")) {
            last = World.take(consumer, 1).get(0);
        }

        World.refused(PreconditionFailedException.class, () -> topics.delete(topic));
        MessageId end = topics.terminateTopic(topic);
        World.isTrue(end.compareTo(ids.get(9)) > 0, "the topic ends with its last message");
        World.until("the consumer is at the end", consumer::hasReachedEndOfTopic);
        World.refused(org.apache.pulsar.client.api.PulsarClientException.class, () -> world.producer().create());
        producer.close();
        consumer.close();
        topics.delete(topic, true);
        World.isTrue(!topics.getList("public/default").contains(topic), "the topic is gone");
    }

    private static void partitions(World world) throws Exception {
        Topics topics = world.admin().topics();
        String topic = world.topic;
        topics.createPartitionedTopic(topic, 3);
        World.same(topics.getPartitionedTopicMetadata(topic).partitions, 3);
        World.isTrue(topics.getPartitionedTopicList("public/default").contains(topic), "the topic is listed");
        World.refused(ConflictException.class, () -> topics.createPartitionedTopic(topic, 2));
        World.refused(ConflictException.class, () -> topics.createNonPartitionedTopic(topic));
        topics.createSubscription(topic, "s", MessageId.earliest);
        Producer<String> producer = world.producer().create();
        World.send(producer, 0, 9);
        World.same(topics.getPartitionedStats(topic, true).getPartitions().size(), 3);
        World.same(topics.getPartitionedStats(topic, true).getMsgInCounter(), 9L);
        World.same(topics.getPartitionedStats(topic, true).getSubscriptions().get("s").getMsgBacklog(), 9L);
        World.same(topics.getPartitionedInternalStats(topic).partitions.size(), 3);
        topics.updatePartitionedTopic(topic, 5);
        World.same(topics.getPartitionedTopicMetadata(topic).partitions, 5);
        World.refused(PulsarAdminException.class, () -> topics.updatePartitionedTopic(topic, 4));
        World.same(topics.getSubscriptions(topic + "-partition-4"), List.of("s"));
        topics.skipAllMessages(topic, "s");
        World.same(topics.getPartitionedStats(topic, false).getSubscriptions().get("s").getMsgBacklog(), 0L);
        topics.unload(topic);
        topics.deleteSubscription(topic, "s");
        producer.close();
        World.same(topics.terminatePartitionedTopic(topic).keySet(), Set.of(0, 1, 2, 3, 4));
        World.refused(NotFoundException.class, () -> topics.deletePartitionedTopic(topic + "-x"));
        topics.deletePartitionedTopic(topic);
        World.isTrue(topics.getList("public/default").stream().noneMatch(each -> each.startsWith(topic)), "no partition is left");
        World.refused(NotFoundException.class, () -> topics.getPartitionedTopicMetadata(topic));
    }

    private static void subscriptions(World world) throws Exception {
        Topics topics = world.admin().topics();
        String topic = world.topic;
        Producer<String> producer = world.producer().create();
        List<MessageId> ids = new ArrayList<>();
        List<Long> times = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            times.add(System.currentTimeMillis());
            ids.add(producer.newMessage().value(Integer.toString(number)).key("k").property("n", "" + number).send());
            Thread.sleep(2);
        }
        topics.createSubscription(topic, "s", MessageId.earliest);
        World.refused(ConflictException.class, () -> topics.createSubscription(topic, "s", MessageId.earliest));
        World.same(backlog(topics, topic, "s"), 20L);
        topics.createSubscription(topic, "end", MessageId.latest);
        World.same(backlog(topics, topic, "end"), 0L);
        topics.createSubscription(topic, "with", MessageId.earliest, false, Map.of("a", "b"));
        World.same(topics.getSubscriptionProperties(topic, "with"), Map.of("a", "b"));
        topics.updateSubscriptionProperties(topic, "with", Map.of("c", "d"));
        World.same(topics.getSubscriptionProperties(topic, "with"), Map.of("c", "d"));

        List<Message<byte[]>> peeked = topics.peekMessages(topic, "s", 3);
        World.same(peeked.stream().map(each -> new String(each.getData())).toList(), World.range(0, 3));
        World.same(peeked.get(1).getProperties().get("n"), "1");
        World.same(peeked.get(1).getKey(), "k");
        World.same(new String(topics.examineMessage(topic, "latest", 1).getData()), "19");
        World.same(topics.getMessageIdByTimestamp(topic, times.get(7)).compareTo(ids.get(7)), 0);
        var id = (org.apache.pulsar.client.api.MessageIdAdv) ids.get(5);
        World.same(new String(topics.getMessagesById(topic, id.getLedgerId(), id.getEntryId()).get(0).getData()), "5");
        World.same(topics.analyzeSubscriptionBacklog(topic, "s", java.util.Optional.empty()).getMessages(), 20L);

        topics.skipMessages(topic, "s", 5);
        World.same(backlog(topics, topic, "s"), 15L);
        topics.resetCursor(topic, "s", ids.get(2));
        World.same(backlog(topics, topic, "s"), 18L);
        topics.resetCursor(topic, "s", ids.get(2), true);
        World.same(backlog(topics, topic, "s"), 17L);
        topics.resetCursor(topic, "s", times.get(10));
        World.same(backlog(topics, topic, "s"), 10L);
        topics.expireMessages(topic, "s", ids.get(14), false);
        World.until("fifteen are expired", () -> backlog(topics, topic, "s") == 5);
        Thread.sleep(1_100);
        topics.expireMessages(topic, "s", 1);
        World.until("all are expired", () -> backlog(topics, topic, "s") == 0);
        topics.resetCursor(topic, "s", MessageId.earliest);
        World.same(backlog(topics, topic, "s"), 20L);
        topics.skipAllMessages(topic, "s");
        World.same(backlog(topics, topic, "s"), 0L);

        World.refused(NotFoundException.class, () -> topics.skipAllMessages(topic, "x"));
        World.refused(NotFoundException.class, () -> topics.resetCursor(topic, "x", MessageId.earliest));
        World.refused(NotFoundException.class, () -> topics.deleteSubscription(topic, "x"));
        try (Consumer<String> consumer = world.consumer().subscribe()) {
            World.refused(PreconditionFailedException.class, () -> topics.deleteSubscription(topic, "s"));
        }
        topics.deleteSubscription(topic, "s");
        World.same(new TreeSet<>(topics.getSubscriptions(topic)), new TreeSet<>(Set.of("end", "with")));
    }

    private static long backlog(Topics topics, String topic, String subscription) throws Exception {
        return topics.getStats(topic, true).getSubscriptions().get(subscription).getMsgBacklog();
    }

    private static void namespacePolicies(World world) throws Exception {
        Namespaces n = world.admin().namespaces();
        String ns = namespaceOf(world);
        Findings all = new Findings();
        all.step("retention", () -> {
            n.setRetention(ns, new RetentionPolicies(60, 100));
            World.same(n.getRetention(ns), new RetentionPolicies(60, 100));
            n.removeRetention(ns);
            World.same(n.getRetention(ns), null);
            World.refused(PreconditionFailedException.class, () -> n.setRetention(ns, new RetentionPolicies(0, 10)));
        });
        all.step("messageTTL", () -> {
            n.setNamespaceMessageTTL(ns, 77);
            World.same(n.getNamespaceMessageTTL(ns), 77);
            n.removeNamespaceMessageTTL(ns);
            World.same(n.getNamespaceMessageTTL(ns), null);
        });
        all.step("backlogQuota", () -> {
            BacklogQuota quota = BacklogQuota.builder().limitSize(1 << 30).retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build();
            n.setBacklogQuota(ns, quota);
            World.same(n.getBacklogQuotaMap(ns).get(BacklogQuotaType.destination_storage).getLimitSize(), 1L << 30);
            n.removeBacklogQuota(ns);
            World.same(n.getBacklogQuotaMap(ns).get(BacklogQuotaType.destination_storage), null);
        });
        all.step("persistence", () -> {
            n.setPersistence(ns, new PersistencePolicies(3, 3, 2, 1.0));
            World.same(n.getPersistence(ns), new PersistencePolicies(3, 3, 2, 1.0));
            n.removePersistence(ns);
            World.same(n.getPersistence(ns), null);
            World.refused(PreconditionFailedException.class, () -> n.setPersistence(ns, new PersistencePolicies(1, 2, 3, 0)));
        });
        all.step("deduplication", () -> {
            n.setDeduplicationStatus(ns, true);
            World.same(n.getDeduplicationStatus(ns), true);
            n.removeDeduplicationStatus(ns);
            World.same(n.getDeduplicationStatus(ns), null);
            n.setDeduplicationSnapshotInterval(ns, 60);
            World.same(n.getDeduplicationSnapshotInterval(ns), 60);
        });
        all.step("rates", () -> {
            n.setPublishRate(ns, new PublishRate(100, 200));
            World.same(n.getPublishRate(ns), new PublishRate(100, 200));
            n.removePublishRate(ns);
            DispatchRate rate = DispatchRate.builder().dispatchThrottlingRateInMsg(10).dispatchThrottlingRateInByte(20).ratePeriodInSecond(2).build();
            n.setDispatchRate(ns, rate);
            World.same(n.getDispatchRate(ns), rate);
            n.removeDispatchRate(ns);
            n.setSubscriptionDispatchRate(ns, rate);
            World.same(n.getSubscriptionDispatchRate(ns), rate);
            n.removeSubscriptionDispatchRate(ns);
        });
        all.step("schemas", () -> {
            n.setSchemaCompatibilityStrategy(ns, SchemaCompatibilityStrategy.BACKWARD_TRANSITIVE);
            World.same(n.getSchemaCompatibilityStrategy(ns), SchemaCompatibilityStrategy.BACKWARD_TRANSITIVE);
            n.setSchemaValidationEnforced(ns, true);
            World.same(n.getSchemaValidationEnforced(ns), true);
            n.setIsAllowAutoUpdateSchema(ns, false);
            World.same(n.getIsAllowAutoUpdateSchema(ns), false);
            n.setIsAllowAutoUpdateSchema(ns, true);
        });
        all.step("autoTopicCreation", () -> {
            AutoTopicCreationOverride off = AutoTopicCreationOverride.builder().allowAutoTopicCreation(false).build();
            n.setAutoTopicCreation(ns, off);
            World.same(n.getAutoTopicCreation(ns).isAllowAutoTopicCreation(), false);
            World.refused(org.apache.pulsar.client.api.PulsarClientException.class, () -> world.producer("persistent://" + ns + "/never").create());
            n.setAutoTopicCreation(ns, AutoTopicCreationOverride.builder()
                    .allowAutoTopicCreation(true).topicType(TopicType.PARTITIONED.toString()).defaultNumPartitions(3).build());
            world.producer("persistent://" + ns + "/automatic").create().close();
            World.same(world.admin().topics().getPartitionedTopicMetadata("persistent://" + ns + "/automatic").partitions, 3);
            n.removeAutoTopicCreation(ns);
            AutoSubscriptionCreationOverride no = AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(false).build();
            n.setAutoSubscriptionCreation(ns, no);
            World.same(n.getAutoSubscriptionCreation(ns), no);
            n.removeAutoSubscriptionCreation(ns);
        });
        all.step("inactiveTopicPolicies", () -> {
            InactiveTopicPolicies policies = new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_subscriptions_caught_up, 500, true);
            n.setInactiveTopicPolicies(ns, policies);
            World.same(n.getInactiveTopicPolicies(ns), policies);
            n.removeInactiveTopicPolicies(ns);
        });
        all.step("limits", () -> {
            n.setMaxProducersPerTopic(ns, 3);
            World.same(n.getMaxProducersPerTopic(ns), 3);
            n.removeMaxProducersPerTopic(ns);
            n.setMaxConsumersPerTopic(ns, 4);
            World.same(n.getMaxConsumersPerTopic(ns), 4);
            n.setMaxConsumersPerSubscription(ns, 4);
            World.same(n.getMaxConsumersPerSubscription(ns), 4);
            n.setMaxSubscriptionsPerTopic(ns, 5);
            World.same(n.getMaxSubscriptionsPerTopic(ns), 5);
            n.setMaxTopicsPerNamespace(ns, 99);
            World.same(n.getMaxTopicsPerNamespace(ns), 99);
            n.setMaxUnackedMessagesPerConsumer(ns, 6);
            World.same(n.getMaxUnackedMessagesPerConsumer(ns), 6);
            n.setMaxUnackedMessagesPerSubscription(ns, 7);
            World.same(n.getMaxUnackedMessagesPerSubscription(ns), 7);
            n.setSubscriptionExpirationTime(ns, 8);
            World.same(n.getSubscriptionExpirationTime(ns), 8);
            World.refused(PreconditionFailedException.class, () -> n.setMaxProducersPerTopic(ns, -3));
        });
        all.step("subscriptionTypesEnabled", () -> {
            n.setSubscriptionTypesEnabled(ns, Set.of(SubscriptionType.Shared, SubscriptionType.Exclusive));
            World.same(n.getSubscriptionTypesEnabled(ns), Set.of(SubscriptionType.Shared, SubscriptionType.Exclusive));
            n.removeSubscriptionTypesEnabled(ns);
        });
        all.step("properties", () -> {
            n.setProperty(ns, "k", "v");
            n.setProperties(ns, Map.of("a", "b"));
            World.same(n.getProperties(ns), Map.of("k", "v", "a", "b"));
            World.same(n.getProperty(ns, "k"), "v");
            World.same(n.removeProperty(ns, "k"), "v");
            n.clearProperties(ns);
            World.same(n.getProperties(ns), Map.of());
        });
        all.step("all policies", () -> World.same(n.getPolicies(ns).schema_compatibility_strategy, SchemaCompatibilityStrategy.BACKWARD_TRANSITIVE));
        all.step("unload and backlog", () -> {
            n.clearNamespaceBacklog(ns);
            n.unload(ns);
            n.unloadNamespaceBundle(ns, "0x00000000_0x40000000");
        });
        all.step("not found", () -> World.refused(NotFoundException.class, () -> n.setRetention(ns + "x", new RetentionPolicies(1, 1))));
        all.none();
    }

    private static void topicPolicies(World world) throws Exception {
        var t = world.admin().topicPolicies();
        String topic = world.topic;
        world.admin().topics().createNonPartitionedTopic(topic);
        Findings all = new Findings();
        all.step("retention", () -> {
            World.same(t.getRetention(topic), null);
            t.setRetention(topic, new RetentionPolicies(60, 100));
            World.same(t.getRetention(topic), new RetentionPolicies(60, 100));
            World.same(t.getRetention(topic, true), new RetentionPolicies(60, 100));
            t.removeRetention(topic);
            World.same(t.getRetention(topic), null);
        });
        all.step("messageTTL", () -> {
            t.setMessageTTL(topic, 77);
            World.same(t.getMessageTTL(topic), 77);
            t.removeMessageTTL(topic);
            World.same(t.getMessageTTL(topic), null);
        });
        all.step("backlogQuota", () -> {
            BacklogQuota quota = BacklogQuota.builder().limitTime(60).retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build();
            t.setBacklogQuota(topic, quota, BacklogQuotaType.message_age);
            World.same(t.getBacklogQuotaMap(topic).get(BacklogQuotaType.message_age).getLimitTime(), 60);
            t.removeBacklogQuota(topic, BacklogQuotaType.message_age);
        });
        all.step("persistence", () -> {
            t.setPersistence(topic, new PersistencePolicies(3, 2, 2, 0.5));
            World.same(t.getPersistence(topic), new PersistencePolicies(3, 2, 2, 0.5));
            t.removePersistence(topic);
        });
        all.step("rates", () -> {
            t.setPublishRate(topic, new PublishRate(10, 20));
            World.same(t.getPublishRate(topic), new PublishRate(10, 20));
            t.removePublishRate(topic);
            DispatchRate rate = DispatchRate.builder().dispatchThrottlingRateInMsg(10).dispatchThrottlingRateInByte(20).ratePeriodInSecond(2).build();
            t.setDispatchRate(topic, rate);
            World.same(t.getDispatchRate(topic), rate);
            t.removeDispatchRate(topic);
            t.setSubscriptionDispatchRate(topic, rate);
            World.same(t.getSubscriptionDispatchRate(topic), rate);
            t.removeSubscriptionDispatchRate(topic);
        });
        all.step("limits", () -> {
            t.setMaxProducers(topic, 3);
            World.same(t.getMaxProducers(topic), 3);
            t.removeMaxProducers(topic);
            t.setMaxConsumers(topic, 4);
            World.same(t.getMaxConsumers(topic), 4);
            t.setMaxConsumersPerSubscription(topic, 4);
            World.same(t.getMaxConsumersPerSubscription(topic), 4);
            t.setMaxSubscriptionsPerTopic(topic, 5);
            World.same(t.getMaxSubscriptionsPerTopic(topic), 5);
            t.setMaxUnackedMessagesOnConsumer(topic, 6);
            World.same(t.getMaxUnackedMessagesOnConsumer(topic), 6);
            t.setMaxUnackedMessagesOnSubscription(topic, 7);
            World.same(t.getMaxUnackedMessagesOnSubscription(topic), 7);
            t.setMaxMessageSize(topic, 1_000);
            World.same(t.getMaxMessageSize(topic), 1_000);
            t.removeMaxMessageSize(topic);
        });
        all.step("deduplication", () -> {
            t.setDeduplicationStatus(topic, true);
            World.same(t.getDeduplicationStatus(topic), true);
            t.removeDeduplicationStatus(topic);
            t.setDeduplicationSnapshotInterval(topic, 60);
            World.same(t.getDeduplicationSnapshotInterval(topic), 60);
        });
        all.step("schemas", () -> {
            t.setSchemaCompatibilityStrategy(topic, SchemaCompatibilityStrategy.FORWARD);
            World.same(t.getSchemaCompatibilityStrategy(topic, false), SchemaCompatibilityStrategy.FORWARD);
            t.removeSchemaCompatibilityStrategy(topic);
            world.admin().topics().setSchemaValidationEnforced(topic, true);
            World.same(world.admin().topics().getSchemaValidationEnforced(topic, false), true);
        });
        all.step("inactiveTopicPolicies", () -> {
            InactiveTopicPolicies policies = new InactiveTopicPolicies(InactiveTopicDeleteMode.delete_when_no_subscriptions, 500, false);
            t.setInactiveTopicPolicies(topic, policies);
            World.same(t.getInactiveTopicPolicies(topic), policies);
            t.removeInactiveTopicPolicies(topic);
        });
        all.step("subscriptionTypesEnabled", () -> {
            t.setSubscriptionTypesEnabled(topic, Set.of(SubscriptionType.Shared));
            World.same(t.getSubscriptionTypesEnabled(topic), Set.of(SubscriptionType.Shared));
            t.removeSubscriptionTypesEnabled(topic);
        });
        all.step("not found", () -> World.refused(NotFoundException.class, () -> t.setMessageTTL(topic + "-x", 1)));
        all.none();
    }

    private static void schemas(World world) throws Exception {
        Schemas schemas = world.admin().schemas();
        String topic = world.topic;
        world.admin().topics().createNonPartitionedTopic(topic);
        World.refused(NotFoundException.class, () -> schemas.getSchemaInfo(topic));
        SchemaInfo first = Schema.AVRO(SchemaScenarios.First.Person.class).getSchemaInfo();
        SchemaInfo second = Schema.AVRO(SchemaScenarios.WithMail.Person.class).getSchemaInfo();
        SchemaInfo third = Schema.AVRO(SchemaScenarios.NameIsNumber.Person.class).getSchemaInfo();
        schemas.createSchema(topic, first);
        World.same(schemas.testCompatibility(topic, second).isCompatibility(), true);
        World.same(schemas.testCompatibility(topic, third).isCompatibility(), false);
        schemas.createSchema(topic, second);
        World.refused(ConflictException.class, () -> schemas.createSchema(topic, third));
        World.same(schemas.getSchemaInfo(topic).getType(), SchemaType.AVRO);
        World.same(schemas.getSchemaInfoWithVersion(topic).getVersion(), 1L);
        World.same(schemas.getSchemaInfo(topic, 0).getSchemaDefinition(), first.getSchemaDefinition());
        World.same(schemas.getAllSchemas(topic).size(), 2);
        World.same(schemas.getVersionBySchema(topic, first), 0L);
        schemas.deleteSchema(topic);
        World.refused(NotFoundException.class, () -> schemas.getSchemaInfo(topic));
    }

    private static void brokers(World world) throws Exception {
        PulsarAdmin admin = world.admin();
        String cluster = admin.clusters().getClusters().get(0);
        World.isTrue(!admin.clusters().getCluster(cluster).getServiceUrl().isEmpty(), "the cluster has an address");
        World.same(admin.brokers().getActiveBrokers(cluster).size(), 2);
        World.isTrue(!admin.brokers().getLeaderBroker().getServiceUrl().isEmpty(), "there is a leader");
        admin.brokers().healthcheck(TopicVersion.V2);
        World.isTrue(!admin.brokers().getVersion().isEmpty(), "the broker has a version");
        World.isTrue(admin.brokerStats().getMetrics().startsWith("["), "the broker has metrics");
        World.isTrue(!admin.brokers().getRuntimeConfigurations().isEmpty(), "the broker has a configuration");
        World.refused(NotFoundException.class, () -> admin.clusters().getCluster("x"));
        World.refused(NotFoundException.class, () -> admin.namespaces().getNamespaces("no-such-tenant"));
    }
}
