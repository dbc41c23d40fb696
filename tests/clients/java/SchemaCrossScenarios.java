import com.google.protobuf.Api;
import com.google.protobuf.Method;
import com.google.protobuf.SourceContext;
import com.google.protobuf.Syntax;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Schemas that the clients in Python and Go lack or have in part: what this one published ours reads, and the other way round. */
final class SchemaCrossScenarios {
    private static final List<String> WAYS = List.of("single", "batched");
    private static final SchemaDefinition<CrossScenarios.Person> PERSON = SchemaDefinition.<CrossScenarios.Person>builder()
            .withPojo(CrossScenarios.Person.class).withAlwaysAllowNull(false).build();

    private SchemaCrossScenarios() {}

    static void registerAll() {
        Program.register("key_values_publish", SchemaCrossScenarios::publishKeyValues);
        Program.register("key_values_consume", SchemaCrossScenarios::consumeKeyValues);
        Program.register("protobuf_publish", world -> {
            for (String way : WAYS) {
                publish(world, "protobuf-" + way, Schema.PROTOBUF_NATIVE(Api.class), APIS);
            }
        });
        Program.register("protobuf_consume", SchemaCrossScenarios::consumeProtobuf);
    }

    private static Schema<KeyValue<String, CrossScenarios.Person>> byText(KeyValueEncodingType encoding) {
        return Schema.KeyValue(Schema.STRING, Schema.AVRO(PERSON), encoding);
    }

    private static Schema<KeyValue<CrossScenarios.Person, CrossScenarios.Person>> byRecord(KeyValueEncodingType encoding) {
        return Schema.KeyValue(Schema.AVRO(PERSON), Schema.JSON(PERSON), encoding);
    }

    private static CrossScenarios.Person person(int number) {
        CrossScenarios.Person person = new CrossScenarios.Person();
        person.age = number;
        person.name = "n" + number;
        return person;
    }

    /** Each part there, missing, and both missing; the text once empty. */
    private static final List<KeyValue<String, CrossScenarios.Person>> BY_TEXT = List.of(
            new KeyValue<>("k0", person(0)), new KeyValue<>("", person(1)), new KeyValue<>("k2", null),
            new KeyValue<>(null, person(3)), new KeyValue<>(null, null));
    private static final List<KeyValue<CrossScenarios.Person, CrossScenarios.Person>> BY_RECORD =
            List.of(new KeyValue<>(person(7), person(8)), new KeyValue<>(person(7), null), new KeyValue<>(null, person(9)));

    /** A message of the library's own whose file imports others, which import others. */
    private static final List<Api> APIS = List.of(
            Api.newBuilder()
                    .setName("first")
                    .addMethods(Method.newBuilder().setName("get").setRequestStreaming(true))
                    .addMethods(Method.newBuilder().setName("put").setSyntax(Syntax.SYNTAX_PROTO3))
                    .setSourceContext(SourceContext.newBuilder().setFileName("f.proto"))
                    .setSyntax(Syntax.SYNTAX_PROTO3)
                    .build(),
            Api.newBuilder().setVersion("2").build());

    private static void consumeProtobuf(World world) throws Exception {
        for (String way : WAYS) {
            List<Message<Api>> found = messages(world, "protobuf-" + way, Schema.PROTOBUF_NATIVE(Api.class), APIS.size());
            World.same(World.values(found), APIS);
            // Who knows no class.
            List<Message<GenericRecord>> records = messages(world, "protobuf-" + way, Schema.AUTO_CONSUME(), APIS.size());
            World.same(records.get(0).getValue().getField("name"), "first");
            World.same(records.get(0).getValue().getField("source_context").toString(), "file_name: \"f.proto\"\n");
            World.same(((List<?>) records.get(0).getValue().getField("methods")).size(), 2);
            World.same(records.get(1).getValue().getField("name"), "");
        }
    }

    private static String said(Object value) {
        if (value instanceof CrossScenarios.Person person) {
            return person.age + ":" + person.name;
        }
        if (value instanceof GenericRecord record) {
            return record.getField("age") + ":" + record.getField("name");
        }
        if (value instanceof KeyValue<?, ?> pair) {
            return said(pair.getKey()) + "=" + said(pair.getValue());
        }
        return String.valueOf(value);
    }

    private static void publishKeyValues(World world) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            for (String way : WAYS) {
                publish(world, "text-" + encoding + "-" + way, byText(encoding), BY_TEXT);
                publish(world, "record-" + encoding + "-" + way, byRecord(encoding), BY_RECORD);
            }
        }
    }

    private static void consumeKeyValues(World world) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            for (String way : WAYS) {
                List<String> text = consume(world, "text-" + encoding + "-" + way, byText(encoding));
                World.same(text, BY_TEXT.stream().map(SchemaCrossScenarios::said).toList());
                List<String> record = consume(world, "record-" + encoding + "-" + way, byRecord(encoding));
                World.same(record, BY_RECORD.stream().map(SchemaCrossScenarios::said).toList());
                // Who knows no class.
                for (Message<GenericRecord> message : messages(world, "record-" + encoding + "-" + way, Schema.AUTO_CONSUME(), record.size())) {
                    World.same(said(message.getValue().getNativeObject()), record.remove(0));
                }
            }
        }
    }

    private static <T> void publish(World world, String name, Schema<T> schema, List<T> values) throws Exception {
        try (Producer<T> producer = world.client.newProducer(schema)
                .topic(world.topic + "-" + name)
                .enableBatching(name.endsWith("batched"))
                .create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (T value : values) {
                sent.add(producer.newMessage().value(value).sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> each : sent) {
                each.get();
            }
        }
    }

    private static <T> List<Message<T>> messages(World world, String name, Schema<T> schema, int count) throws Exception {
        try (Consumer<T> consumer = world.client.newConsumer(schema)
                .topic(world.topic + "-" + name)
                .subscriptionName(schema.getClass().getSimpleName())
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            List<Message<T>> messages = World.take(consumer, count);
            World.nothingMore(consumer);
            return messages;
        }
    }

    private static <T> List<String> consume(World world, String name, Schema<T> schema) throws Exception {
        List<String> found = new ArrayList<>();
        for (Message<T> message : messages(world, name, schema, name.startsWith("text") ? BY_TEXT.size() : BY_RECORD.size())) {
            found.add(said(message.getValue()));
        }
        return found;
    }
}
