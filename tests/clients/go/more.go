package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/typepb"
)

func init() {
	scenarios["compacted"] = compacted
	scenarios["bytes_schema"] = bytesSchema
	scenarios["encrypted"] = encrypted
	scenarios["protobuf_publish"] = protobufPublish
	scenarios["protobuf_consume"] = protobufConsume
}

// Of a batch this client hands out also what was taken out of it, empty and without a key.
func keyed(message pulsar.Message) []string {
	if message.Key() == "" {
		return nil
	}
	return []string{message.Key() + "=" + string(message.Payload())}
}

// Bytes are no schema, whether a producer or a message brings them, and leave a topic that has a schema as it is.
func bytesSchema(w *world) {
	bytes := pulsar.NewBytesSchema(nil)
	producer := w.producer(pulsar.ProducerOptions{Schema: bytes})
	consumer := w.subscribe(pulsar.ConsumerOptions{Schema: bytes})
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: []byte("by the producer")}))
	plain := w.plain()
	must(plain.Send(context.Background(), &pulsar.ProducerMessage{Value: []byte("by the message"), Schema: bytes}))
	found := take(consumer, 2)
	same(string(found[0].Payload()), "by the producer")
	same(string(found[1].Payload()), "by the message")
	typed := w.producer(pulsar.ProducerOptions{Schema: pulsar.NewStringSchema(nil)})
	must(typed.Send(context.Background(), &pulsar.ProducerMessage{Value: "text"}))
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: []byte("still bytes"), Schema: bytes}))
	found = take(consumer, 2)
	same(string(found[0].Payload()), "text")
	same(string(found[1].Payload()), "still bytes")
}

func compacted(w *world) {
	// One batch, which the flush ends.
	batched := w.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: time.Minute, CompressionType: pulsar.LZ4})
	for number := range 20 {
		message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number)), Key: fmt.Sprintf("k%d", number%5)}
		batched.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(batched.Flush())
	single := w.plain()
	put := func(key, text string) {
		must(single.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(text), Key: key}))
	}
	put("k1", "")
	put("k2", "new")
	w.admin("PUT", w.adminPath()+"/compaction", nil)
	until("compaction has ended", func() bool { return w.admin("GET", w.adminPath()+"/compaction", nil)["status"] == "SUCCESS" })
	// The log is emptied: only the view has them.
	w.admin("PUT", w.adminPath()+"/unload", nil)
	w.admin("POST", w.adminPath()+"/trim", nil)
	same(w.admin("GET", w.adminPath()+"/internalStats", nil)["numberOfEntries"], any(float64(0)))
	values := []string{"k0=15", "k3=18", "k4=19", "k2=new"}
	reader := must(w.client.CreateReader(pulsar.ReaderOptions{
		Topic: w.topic, StartMessageID: pulsar.EarliestMessageID(), ReadCompacted: true,
	}))
	read := func() []string {
		found := []string{}
		for reader.HasNext() {
			ctx, cancel := context.WithTimeout(context.Background(), receiveTimeout)
			found = append(found, keyed(must(reader.Next(ctx)))...)
			cancel()
		}
		return found
	}
	same(read(), values)
	put("k0", "late")
	same(read(), []string{"k0=late"})
	check(reader.Seek(earliest))
	values = append(values, "k0=late")
	same(read(), values)
	reader.Close()
	consumer := w.subscribe(pulsar.ConsumerOptions{ReadCompacted: true, Type: pulsar.Exclusive})
	found := []string{}
	for len(found) < len(values) {
		found = append(found, keyed(take(consumer, 1)[0])...)
	}
	same(found, values)
	nothingMore(consumer)
	consumer.Close()
}

// pair is a key pair that only this program knows.
type pair struct{ public, private []byte }

func newPair() *pair {
	private := must(rsa.GenerateKey(rand.Reader, 2048))
	public := must(x509.MarshalPKIXPublicKey(&private.PublicKey))
	return &pair{
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}),
	}
}

func (p *pair) PublicKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, p.public, metadata), nil
}

func (p *pair) PrivateKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, p.private, metadata), nil
}

func encrypted(w *world) {
	keys := newPair()
	for _, way := range []string{"single", "batched"} {
		topic := w.topic + "-" + way
		producer := w.producer(pulsar.ProducerOptions{
			Topic:           topic,
			DisableBatching: way == "single",
			CompressionType: pulsar.LZ4,
			Encryption:      &pulsar.ProducerEncryptionInfo{KeyReader: keys, Keys: []string{"own"}},
		})
		for number := range 20 {
			message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number)), Key: fmt.Sprintf("k%d", number)}
			producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
		}
		check(producer.Flush())
		consumer := w.subscribe(pulsar.ConsumerOptions{Topic: topic, Decryption: &pulsar.MessageDecryptionInfo{KeyReader: keys}})
		messages := take(consumer, 20)
		same(texts(messages), numbers(0, 20))
		same(messages[7].Key(), "k7")
		nothingMore(consumer)
		consumer.Close()
	}
	// Who has no key gets what the brokers had, which is not the content.
	blind := w.subscribe(pulsar.ConsumerOptions{
		Topic:            w.topic + "-single",
		SubscriptionName: "blind",
		Decryption: &pulsar.MessageDecryptionInfo{
			KeyReader:                   newPair(),
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume,
		},
	})
	for number, message := range take(blind, 20) {
		holds("the content is not readable", string(message.Payload()) != strconv.Itoa(number))
	}
}

// apis are those of SchemaCrossScenarios.java: messages whose file imports others, which import others.
var apis = []*apipb.Api{
	{
		Name:          "first",
		Methods:       []*apipb.Method{{Name: "get", RequestStreaming: true}, {Name: "put", Syntax: typepb.Syntax_SYNTAX_PROTO3}},
		SourceContext: &sourcecontextpb.SourceContext{FileName: "f.proto"},
		Syntax:        typepb.Syntax_SYNTAX_PROTO3,
	},
	{Version: "2"},
}

var protobufWays = []string{"single", "batched"}

func protobufPublish(w *world) {
	for _, way := range protobufWays {
		schema := pulsar.NewProtoNativeSchemaWithMessage(&apipb.Api{}, nil)
		producer := w.producer(pulsar.ProducerOptions{Topic: w.topic + "-protobuf-" + way, DisableBatching: way == "single", Schema: schema})
		for _, api := range apis {
			message := &pulsar.ProducerMessage{Value: api}
			producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
		}
		check(producer.Flush())
	}
}

func protobufConsume(w *world) {
	for _, way := range protobufWays {
		schema := pulsar.NewProtoNativeSchemaWithMessage(&apipb.Api{}, nil)
		consumer := w.subscribe(pulsar.ConsumerOptions{Topic: w.topic + "-protobuf-" + way, Schema: schema})
		for index, message := range take(consumer, len(apis)) {
			var found apipb.Api
			check(message.GetSchemaValue(&found))
			holds(fmt.Sprintf("%v is as it was published", &found), proto.Equal(&found, apis[index]))
		}
		nothingMore(consumer)
		consumer.Close()
	}
}
