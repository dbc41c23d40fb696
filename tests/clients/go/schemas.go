package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

type person struct {
	Age  int    `json:"age" avro:"age"`
	Name string `json:"name" avro:"name"`
}

func jsonSchema(definition string) pulsar.Schema { return pulsar.NewJSONSchema(definition, nil) }
func avroSchema(definition string) pulsar.Schema { return pulsar.NewAvroSchema(definition, nil) }

func definition(fields ...string) string {
	return `{"type": "record", "name": "Person", "fields": [` + strings.Join(fields, ", ") + `]}`
}

func field(name, kind string) string { return fmt.Sprintf(`{"name": "%s", "type": "%s"}`, name, kind) }

var personDefinition = definition(field("age", "int"), field("name", "string"))

func structs(w *world, schema func(string) pulsar.Schema) {
	first := schema(personDefinition)
	producer := w.producer(pulsar.ProducerOptions{Schema: first})
	consumer := w.subscribe(pulsar.ConsumerOptions{Schema: first})
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: person{36, "Ada"}}))
	var found person
	check(take(consumer, 1)[0].GetSchemaValue(&found))
	same(found, person{36, "Ada"})

	// A field that may be absent is evolution; the consumer of before reads what is written with it.
	mail := `{"name": "mail", "type": ["null", "string"], "default": null}`
	second := schema(definition(field("age", "int"), field("name", "string"), mail))
	newer := w.producer(pulsar.ProducerOptions{Schema: second})
	must(newer.Send(context.Background(), &pulsar.ProducerMessage{Value: struct {
		Age  int     `json:"age" avro:"age"`
		Name string  `json:"name" avro:"name"`
		Mail *string `json:"mail" avro:"mail"`
	}{Age: 1, Name: "Bea"}}))
	check(take(consumer, 1)[0].GetSchemaValue(&found))
	same(found, person{1, "Bea"})

	// Another type of a field is not.
	third := schema(definition(field("age", "int"), field("name", "long")))
	refused("IncompatibleSchema", func() error {
		_, err := w.client.CreateProducer(pulsar.ProducerOptions{Topic: w.topic, Schema: third})
		return err
	})
	refused("IncompatibleSchema", func() error {
		_, err := w.client.Subscribe(pulsar.ConsumerOptions{Topic: w.topic, SubscriptionName: "other", Schema: third})
		return err
	})
}

const crossCount = 10

// What one client published the others consume: the cases are those of cross_client.py but for Snappy, which this client has not, and for
// chunks of the client in C++, which says no uncompressed size when nothing is compressed: this client then gives out the last chunk alone.
func crossCases(w *world) []string {
	var cases []string
	for _, kind := range []string{"none", "lz4", "zlib", "zstd"} {
		cases = append(cases, kind+"-single", kind+"-batched")
	}
	if !strings.HasSuffix(w.topic, "-python") {
		cases = append(cases, "chunked")
	}
	return append(cases, "keyed", "json", "avro")
}

func crossSchema(name string) pulsar.Schema {
	switch name {
	case "json":
		return jsonSchema(personDefinition)
	case "avro":
		return avroSchema(personDefinition)
	}
	return nil
}

func crossBytes(name string, number int) []byte {
	if name == "chunked" {
		big := make([]byte, 6<<20)
		for index := range big {
			big[index] = byte(index)
		}
		return big
	}
	return []byte(fmt.Sprintf("%s-%d", name, number))
}

func crossPublish(w *world) {
	kinds := map[string]pulsar.CompressionType{"lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD}
	for _, name := range crossCases(w) {
		kind, way, _ := strings.Cut(name, "-")
		schema := crossSchema(name)
		options := pulsar.ProducerOptions{Topic: w.topic + "-" + name, Schema: schema, CompressionType: kinds[kind]}
		options.DisableBatching = way != "batched" && name != "keyed"
		options.EnableChunking = name == "chunked"
		count := crossCount
		switch name {
		case "keyed":
			options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
		case "chunked":
			count = 1
		}
		producer := w.producer(options)
		for number := range count {
			message := &pulsar.ProducerMessage{
				Key:        fmt.Sprintf("k%d", number%3),
				Properties: map[string]string{"n": strconv.Itoa(number)},
			}
			if schema != nil {
				message.Value = person{number, fmt.Sprintf("%s-%d", name, number)}
			} else {
				message.Payload = crossBytes(name, number)
			}
			producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
		}
		check(producer.Flush())
		producer.Close()
	}
}

func crossConsume(w *world) {
	for _, name := range crossCases(w) {
		schema := crossSchema(name)
		consumer := w.subscribe(pulsar.ConsumerOptions{Topic: w.topic + "-" + name, SubscriptionName: "go", Schema: schema})
		count := crossCount
		if name == "chunked" {
			count = 1
		}
		var found []int
		for _, message := range take(consumer, count) {
			number := must(strconv.Atoi(message.Properties()["n"]))
			same(message.Key(), fmt.Sprintf("k%d", number%3))
			if schema != nil {
				var value person
				check(message.GetSchemaValue(&value))
				same(value, person{number, fmt.Sprintf("%s-%d", name, number)})
			} else {
				what := fmt.Sprintf("%s %d is as it was published, with %d bytes", name, number, len(message.Payload()))
				holds(what, bytes.Equal(message.Payload(), crossBytes(name, number)))
			}
			found = append(found, number)
		}
		if name == "keyed" {
			slices.Sort(found)
		}
		for index, number := range found {
			same(number, index)
		}
		consumer.Close()
	}
}
