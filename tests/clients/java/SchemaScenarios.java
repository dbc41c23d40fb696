import java.util.List;
import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaType;

/** Schemas: brought by producers and consumers, evolved, and refused. */
final class SchemaScenarios {
    private SchemaScenarios() {}

    /** Their schemas have one name, which is the last part of the class's. */
    static final class First {
        public static final class Person {
            public String name;
            public int age;
        }
    }

    static final class WithMail {
        public static final class Person {
            public String name;
            public int age;
            public String mail;
        }
    }

    static final class NameIsNumber {
        public static final class Person {
            public long name;
            public int age;
        }
    }

    static void registerAll() {
        Program.register("json_schema", world -> structs(world, SchemaType.JSON));
        Program.register("avro_schema", world -> structs(world, SchemaType.AVRO));
        Program.register("primitive_schemas", SchemaScenarios::primitives);
    }

    private static <T> Schema<T> schema(SchemaType type, Class<T> kind) {
        return type == SchemaType.JSON ? Schema.JSON(kind) : Schema.AVRO(kind);
    }

    private static void structs(World world, SchemaType type) throws Exception {
        Producer<First.Person> producer = world.client.newProducer(schema(type, First.Person.class)).topic(world.topic).create();
        Consumer<First.Person> consumer = consumer(world, schema(type, First.Person.class), "s");
        First.Person person = new First.Person();
        person.name = "Ada";
        person.age = 36;
        producer.send(person);
        Message<First.Person> message = World.take(consumer, 1).get(0);
        World.same(List.of(message.getValue().name, message.getValue().age), List.of("Ada", 36));

        // A field that may be absent is evolution; the consumer of before reads what is written with it.
        Producer<WithMail.Person> newer = world.client.newProducer(schema(type, WithMail.Person.class)).topic(world.topic).create();
        WithMail.Person withMail = new WithMail.Person();
        withMail.name = "Bea";
        withMail.mail = "bea@example.org";
        newer.send(withMail);
        World.same(World.take(consumer, 1).get(0).getValue().name, "Bea");

        // Another type of a field is not.
        World.refused(PulsarClientException.IncompatibleSchemaException.class, () -> world.client
                .newProducer(schema(type, NameIsNumber.Person.class)).topic(world.topic).create());
        World.refused(PulsarClientException.IncompatibleSchemaException.class, () -> consumer(
                world, schema(type, NameIsNumber.Person.class), "other"));

        // Who knows no class reads by the versions that the broker keeps.
        Consumer<GenericRecord> any = consumer(world, Schema.AUTO_CONSUME(), "any");
        List<Message<GenericRecord>> records = World.take(any, 2);
        World.same(records.get(0).getValue().getField("name"), "Ada");
        World.same(records.get(1).getValue().getField("mail"), "bea@example.org");
        World.isTrue(records.get(0).getSchemaVersion() != records.get(1).getSchemaVersion(), "versions differ");
        World.same(records.get(1).getValue().getSchemaType(), type);
        Producer<byte[]> automatic = world.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(world.topic).create();
        automatic.send(schema(type, WithMail.Person.class).encode(withMail));
        World.same(World.take(consumer, 1).get(0).getValue().name, "Bea");
    }

    private static <T> Consumer<T> consumer(World world, Schema<T> schema, String subscription) throws Exception {
        return world.client.newConsumer(schema)
                .topic(world.topic)
                .subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private static void primitives(World world) throws Exception {
        one(world, "bool", Schema.BOOL, true);
        one(world, "int8", Schema.INT8, (byte) -8);
        one(world, "int16", Schema.INT16, (short) -16);
        one(world, "int32", Schema.INT32, -32);
        one(world, "int64", Schema.INT64, -64L);
        one(world, "float", Schema.FLOAT, 0.5f);
        one(world, "double", Schema.DOUBLE, 0.25);
        one(world, "string", Schema.STRING, "text");
        one(world, "date", Schema.DATE, new java.util.Date(1_000));
        one(world, "instant", Schema.INSTANT, java.time.Instant.ofEpochSecond(5, 6));
        one(world, "local-date", Schema.LOCAL_DATE, java.time.LocalDate.of(2020, 1, 2));
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            one(world, "key-value-" + encoding, Schema.KeyValue(Schema.STRING, Schema.INT32, encoding), new KeyValue<>("k", 1));
        }
        World.refused(PulsarClientException.IncompatibleSchemaException.class, () -> world.client
                .newProducer(Schema.INT64).topic(world.topic + "-int32").create());
    }

    private static <T> void one(World world, String name, Schema<T> schema, T value) throws Exception {
        String topic = world.topic + "-" + name;
        try (Producer<T> producer = world.client.newProducer(schema).topic(topic).create();
                Consumer<T> consumer = world.client.newConsumer(schema)
                        .topic(topic)
                        .subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            producer.send(value);
            World.same(World.values(World.take(consumer, 1)), List.of(value));
        }
    }
}
