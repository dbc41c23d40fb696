package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	for name, scenario := range map[string]func(*world){
		"produce_consume": produceConsume,
		"batches":         batches,
		"compression":     compression,
		"partitioned":     partitioned,
		"shared":          shared,
		"non_persistent":  nonPersistent,
		"failover":        failover,
		"key_shared":      keyShared,
		"negative_ack":    negativeAck,
		"access_modes":    accessModes,
		"delayed":         delayed,
		"json_schema":     func(w *world) { structs(w, jsonSchema) },
		"avro_schema":     func(w *world) { structs(w, avroSchema) },
		"cross_publish":   crossPublish,
		"cross_consume":   crossConsume,
		"dead_letters":    deadLetters,
		"reader":          reader,
		"seek":            seek,
		"pattern":         pattern,
		"table_view":      tableView,
		"chunked":         chunked,
		"deduplication":   deduplication,
		"owner_killed":    ownerKilled,
	} {
		scenarios[name] = scenario
	}
}

func produceConsume(w *world) {
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true, Properties: map[string]string{"of": "producer"}})
	var ids []string
	for number := range 100 {
		id := must(producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload:    []byte(fmt.Sprintf("m%d", number)),
			Properties: map[string]string{"n": strconv.Itoa(number)},
			Key:        fmt.Sprintf("k%d", number),
			EventTime:  time.UnixMilli(int64(number + 1)),
		}))
		ids = append(ids, id.String())
	}
	consumer := w.subscribe(pulsar.ConsumerOptions{})
	messages := take(consumer, 100)
	for number, message := range messages {
		same(string(message.Payload()), fmt.Sprintf("m%d", number))
		same(message.Properties(), map[string]string{"n": strconv.Itoa(number)})
		same(message.Key(), fmt.Sprintf("k%d", number))
		same(message.EventTime().UnixMilli(), int64(number+1))
		same(message.ID().String(), ids[number])
	}
	nothingMore(consumer)
	last := must(consumer.GetLastMessageIDs())
	same([]int64{last[0].LedgerID(), last[0].EntryID()}, []int64{messages[99].ID().LedgerID(), messages[99].ID().EntryID()})
	consumer.Close()
	// What was acknowledged does not come again.
	nothingMore(w.subscribe(pulsar.ConsumerOptions{}))
}

func batches(w *world) {
	producer := w.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: 10 * time.Millisecond, BatchingMaxMessages: 50})
	var sent sync.WaitGroup
	sent.Add(2_000)
	for number := range 2_000 {
		message := &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number))}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			check(err)
			sent.Done()
		})
	}
	check(producer.Flush())
	sent.Wait()
	options := pulsar.ConsumerOptions{EnableBatchIndexAcknowledgment: true}
	consumer := w.subscribe(options)
	same(texts(takeUnacknowledged(consumer, 2_000)), numbers(0, 2_000))
	consumer.Close()
	consumer = w.subscribe(options)
	messages := takeUnacknowledged(consumer, 2_000)
	var acknowledged sync.WaitGroup
	for _, message := range messages[:125] { // two batches and a half, if they were full
		acknowledged.Add(1)
		go func() {
			defer acknowledged.Done()
			check(consumer.Ack(message))
		}()
	}
	acknowledged.Wait()
	consumer.Close()
	consumer = w.subscribe(options)
	rest := takeUnacknowledged(consumer, 1_875)
	same(texts(rest), numbers(125, 2_000))
	check(consumer.AckCumulative(rest[1_874]))
	consumer.Close()
	nothingMore(w.subscribe(pulsar.ConsumerOptions{}))
}

func compression(w *world) {
	consumer := w.subscribe(pulsar.ConsumerOptions{})
	text := string(bytes.Repeat([]byte("abc"), 5_000))
	for _, kind := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
		for _, batching := range []bool{false, true} {
			producer := w.producer(pulsar.ProducerOptions{CompressionType: kind, DisableBatching: !batching})
			for range 5 {
				producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(text)},
					func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
			}
			check(producer.Flush())
			producer.Close()
			for _, found := range texts(take(consumer, 5)) {
				holds("the text came as it was sent", found == text)
			}
		}
	}
}

func partitioned(w *world) {
	w.admin("PUT", w.adminPath()+"/partitions", 4)
	same(len(must(w.client.TopicPartitions(w.topic))), 4)
	producer := w.producer(pulsar.ProducerOptions{HashingScheme: pulsar.Murmur3_32Hash})
	for number := range 200 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(strconv.Itoa(number)),
			Key:     fmt.Sprintf("key-%d", number%10),
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.Flush())
	consumer := w.subscribe(pulsar.ConsumerOptions{AutoDiscoveryPeriod: time.Second})
	last := map[string]int{}
	partition := map[string]string{}
	all := map[string]bool{}
	for _, message := range take(consumer, 200) {
		number := must(strconv.Atoi(string(message.Payload())))
		before, seen := last[message.Key()]
		holds("a key's messages come in order", !seen || before < number)
		last[message.Key()] = number
		holds("a key stays in one partition", !seen || partition[message.Key()] == message.Topic())
		partition[message.Key()] = message.Topic()
		all[message.Topic()] = true
	}
	holds("keys went to more than one partition", len(all) > 1)
	nothingMore(consumer)
	// Partitions that are added are found by a consumer that is there.
	w.admin("POST", w.adminPath()+"/partitions", 6)
	send(w.producer(pulsar.ProducerOptions{Topic: w.topic + "-partition-5"}), "new")
	same(texts(take(consumer, 1)), []string{"new"})
}

// takeAll gives all that comes, by consumer, until nothing comes any more.
func takeAll(consumers []pulsar.Consumer) [][]int {
	got := make([][]int, len(consumers))
	for quiet := 0; quiet < 20*len(consumers); {
		for index, consumer := range consumers {
			message := receive(consumer, 20*time.Millisecond)
			if message == nil {
				quiet++
				continue
			}
			quiet = 0
			got[index] = append(got[index], must(strconv.Atoi(string(message.Payload()))))
			check(consumer.Ack(message))
		}
	}
	return got
}

func shared(w *world) {
	options := pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 10}
	consumers := []pulsar.Consumer{w.subscribe(options), w.subscribe(options)}
	sendNumbers(w.plain(), 0, 100)
	got := takeAll(consumers)
	holds("both consumers got something", len(got[0]) > 0 && len(got[1]) > 0)
	both := slices.Concat(got[0], got[1])
	slices.Sort(both)
	for number := range 100 {
		same(both[number], number)
	}
	same(len(both), 100)
}

func nonPersistent(w *world) {
	topic := strings.Replace(w.topic, "persistent://", "non-persistent://", 1)
	types := []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Failover, pulsar.Shared, pulsar.KeyShared}
	var consumers []pulsar.Consumer
	for number, kind := range types {
		name := fmt.Sprintf("s%d", number)
		consumers = append(consumers, w.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: kind}))
	}
	producer := w.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	sendNumbers(producer, 0, 100)
	for _, consumer := range consumers {
		same(texts(take(consumer, 100)), numbers(0, 100))
		nothingMore(consumer)
	}
	nothingMore(w.subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "late"}))
	send(producer, "last")
	for _, consumer := range consumers {
		same(texts(take(consumer, 1)), []string{"last"})
	}
}

type activeListener chan string

func (l activeListener) BecameActive(consumer pulsar.Consumer, _ string, _ int32) {
	l <- consumer.Name()
}
func (l activeListener) BecameInactive(pulsar.Consumer, string, int32) {}

func failover(w *world) {
	active := make(activeListener, 10)
	options := pulsar.ConsumerOptions{Type: pulsar.Failover, EventListener: active, Name: "a"}
	first := w.subscribe(options)
	same(<-active, "a")
	sendNumbers(w.plain(), 0, 20)
	same(texts(take(first, 10)), numbers(0, 10))
	options.Name = "b"
	second := w.subscribe(options)
	nothingMore(second)
	first.Close()
	same(texts(take(second, 10)), numbers(10, 20))
	nothingMore(second)
	same(<-active, "b")
}

func keyShared(w *world) {
	options := pulsar.ConsumerOptions{Type: pulsar.KeyShared}
	consumers := []pulsar.Consumer{w.subscribe(options), w.subscribe(options)}
	producer := w.producer(pulsar.ProducerOptions{BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	publish := func(count int) {
		for number := range count {
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
				Payload: []byte(strconv.Itoa(number)),
				Key:     fmt.Sprintf("key-%d", number%20),
			}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
		}
		check(producer.Flush())
	}
	publish(400)
	owner := map[int]int{}
	total := 0
	for index, found := range takeAll(consumers) {
		holds("each consumer got something", len(found) > 0)
		last := map[int]int{}
		for _, number := range found {
			before, seen := last[number%20]
			holds("a key's messages come in order", !seen || before < number)
			last[number%20] = number
			holder, held := owner[number%20]
			holds("a key comes to one consumer", !held || holder == index)
			owner[number%20] = index
		}
		total += len(found)
	}
	same(total, 400)
	// Who leaves gives its keys to who stays, with what it had not acknowledged.
	publish(40)
	takeUnacknowledged(consumers[0], 1)
	consumers[0].Close()
	same(len(takeAll(consumers[1:])[0]), 40)
}

func accessModes(w *world) {
	create := func(mode pulsar.ProducerAccessMode) (pulsar.Producer, error) {
		return w.client.CreateProducer(pulsar.ProducerOptions{Topic: w.topic, ProducerAccessMode: mode})
	}
	alone := must(create(pulsar.ProducerAccessModeExclusive))
	refused("ProducerFenced", func() error { _, err := create(pulsar.ProducerAccessModeExclusive); return err })
	refused("ProducerBusy", func() error { _, err := create(pulsar.ProducerAccessModeShared); return err })
	waiting := make(chan pulsar.Producer)
	go func() { waiting <- must(create(pulsar.ProducerAccessModeWaitForExclusive)) }()
	send(alone, "alone")
	alone.Close()
	send(<-waiting, "waited")
	same(texts(take(w.subscribe(pulsar.ConsumerOptions{}), 2)), []string{"alone", "waited"})
}

func delayed(w *world) {
	consumer := w.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
	ordered := w.subscribe(pulsar.ConsumerOptions{SubscriptionName: "ordered"})
	producer := w.plain()
	began := time.Now()
	for _, message := range []*pulsar.ProducerMessage{
		// The first one is not due before all are there.
		{Payload: []byte("late"), DeliverAfter: 9 * time.Second},
		{Payload: []byte("at"), DeliverAt: began.Add(8 * time.Second)},
		{Payload: []byte("now")},
	} {
		must(producer.Send(context.Background(), message))
	}
	same(texts(take(consumer, 1)), []string{"now"})
	same(texts(take(ordered, 3)), []string{"late", "at", "now"})
	same(texts(take(consumer, 1)), []string{"at"})
	holds("the message does not come before its time", time.Since(began) >= 8*time.Second-time.Millisecond)
	same(texts(take(consumer, 1)), []string{"late"})
	holds("the message does not come before its time", time.Since(began) >= 9*time.Second-time.Millisecond)
}

func negativeAck(w *world) {
	consumer := w.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared, NackRedeliveryDelay: 300 * time.Millisecond})
	sendNumbers(w.plain(), 0, 10)
	for number, message := range takeUnacknowledged(consumer, 10) {
		if number%2 == 0 {
			check(consumer.Ack(message))
		} else {
			consumer.Nack(message)
		}
	}
	again := take(consumer, 5)
	found := texts(again)
	slices.Sort(found)
	same(found, []string{"1", "3", "5", "7", "9"})
	for _, message := range again {
		same(message.RedeliveryCount(), uint32(1))
	}
	nothingMore(consumer)
}

func deadLetters(w *world) {
	deadTopic := w.topic + "-dead"
	consumer := w.subscribe(pulsar.ConsumerOptions{
		SubscriptionName:    "work",
		Type:                pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond,
		DLQ:                 &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: deadTopic, InitialSubscriptionName: "initial"},
	})
	producer := w.plain()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{
		Payload: []byte("poison"), Properties: map[string]string{"why": "bad"},
	}))
	send(producer, "good")
	graves := w.subscribe(pulsar.ConsumerOptions{Topic: deadTopic, SubscriptionName: "graves"})
	attempts := 0
	var dead pulsar.Message
	for round := 0; dead == nil && round < 100; round++ {
		message := receive(consumer, 300*time.Millisecond)
		switch {
		case message == nil:
			dead = receive(graves, 300*time.Millisecond)
		case string(message.Payload()) == "poison":
			attempts++
			consumer.Nack(message)
		default:
			check(consumer.Ack(message))
		}
	}
	holds("a dead letter comes", dead != nil)
	same([]string{string(dead.Payload()), dead.Properties()["why"], strconv.Itoa(attempts)}, []string{"poison", "bad", "3"})
	// The policy's initial subscription was made with the topic, so that nothing dead is lost.
	initial := w.subscribe(pulsar.ConsumerOptions{Topic: deadTopic, SubscriptionName: "initial"})
	same(texts(take(initial, 1)), []string{"poison"})
}

// This client seeks to nothing but ids with a partition.
var (
	earliest = pulsar.NewMessageID(-1, -1, -1, 0)
	latest   = pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)
)

func (w *world) readerAt(start pulsar.MessageID) pulsar.Reader {
	return must(w.client.CreateReader(pulsar.ReaderOptions{Topic: w.topic, StartMessageID: start}))
}

func next(reader pulsar.Reader) string {
	ctx, cancel := context.WithTimeout(context.Background(), receiveTimeout)
	defer cancel()
	return string(must(reader.Next(ctx)).Payload())
}

func reader(w *world) {
	producer := w.producer(pulsar.ProducerOptions{BatchingMaxMessages: 10, BatchingMaxPublishDelay: 50 * time.Millisecond})
	ids := make(chan pulsar.MessageID, 100)
	for number := range 100 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number))},
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				check(err)
				ids <- id
			})
	}
	check(producer.Flush())
	var sent []pulsar.MessageID
	for len(sent) < 100 {
		sent = append(sent, <-ids)
	}
	whole := w.readerAt(pulsar.EarliestMessageID())
	read := []string{}
	for whole.HasNext() {
		read = append(read, next(whole))
	}
	same(read, numbers(0, 100))
	same(next(w.readerAt(sent[41])), "42")
	end := w.readerAt(pulsar.LatestMessageID())
	same(end.HasNext(), false)
	send(producer, "new")
	same(next(end), "new")
	check(whole.Seek(sent[9]))
	same(next(whole), "10")
	check(whole.Seek(earliest))
	same(next(whole), "0")
}

func seek(w *world) {
	producer := w.plain()
	var ids []pulsar.MessageID
	var times []time.Time
	for number := range 50 {
		times = append(times, time.Now().Truncate(time.Millisecond))
		ids = append(ids, send(producer, strconv.Itoa(number)))
		time.Sleep(2 * time.Millisecond)
	}
	consumer := w.subscribe(pulsar.ConsumerOptions{StartMessageIDInclusive: true})
	take(consumer, 50)
	check(consumer.Seek(ids[20]))
	same(texts(take(consumer, 30)), numbers(20, 50))
	check(consumer.SeekByTime(times[30]))
	same(texts(take(consumer, 20)), numbers(30, 50))
	check(consumer.Seek(earliest))
	same(texts(takeUnacknowledged(consumer, 1)), numbers(0, 1))
	check(consumer.Seek(latest))
	nothingMore(consumer)
	send(producer, "after")
	same(texts(take(consumer, 1)), []string{"after"})
}

func pattern(w *world) {
	producerOf := func(name string) pulsar.Producer {
		return w.producer(pulsar.ProducerOptions{Topic: w.topic + "-" + name})
	}
	first, other := producerOf("a"), producerOf("other")
	consumer := w.subscribe(pulsar.ConsumerOptions{TopicsPattern: w.topic + "-[a-c]", AutoDiscoveryPeriod: time.Second})
	send(first, "a")
	send(other, "other")
	same(texts(take(consumer, 1)), []string{"a"})
	send(producerOf("b"), "b")
	same(texts(take(consumer, 1)), []string{"b"})
	nothingMore(consumer)
}

func tableView(w *world) {
	schema := pulsar.NewStringSchema(nil)
	producer := w.producer(pulsar.ProducerOptions{Schema: schema})
	put := func(key, value string) {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value, Key: key}))
	}
	for number := range 20 {
		put(fmt.Sprintf("k%d", number%5), strconv.Itoa(number))
	}
	var text string
	view := must(w.client.CreateTableView(pulsar.TableViewOptions{
		Topic: w.topic, Schema: schema, SchemaValueType: reflect.TypeOf(&text),
	}))
	defer view.Close()
	same([]string{*view.Get("k0").(*string), *view.Get("k4").(*string)}, []string{"15", "19"})
	same(view.Size(), 5)
	put("k0", "new")
	until("the view has the new value", func() bool { return *view.Get("k0").(*string) == "new" })
}

func chunked(w *world) {
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true})
	big := make([]byte, 20<<20)
	must(rand.Read(big))
	id := must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: big}))
	send(producer, "small")
	messages := take(w.subscribe(pulsar.ConsumerOptions{}), 2)
	holds("the big message came as it was sent", bytes.Equal(messages[0].Payload(), big))
	same(string(messages[1].Payload()), "small")
	same(messages[0].ID().String(), id.String())
}

func deduplication(w *world) {
	w.plain().Close()
	w.admin("POST", w.adminPath()+"/deduplicationEnabled", true)
	until("deduplication is on", func() bool { return w.admin("GET", w.adminPath()+"/stats", nil)["deduplicationStatus"] == "Enabled" })
	options := pulsar.ProducerOptions{Name: "exact", DisableBatching: true}
	producer := w.producer(options)
	for _, number := range []int64{0, 1, 2, 1, 2, 3} {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(strconv.FormatInt(number, 10)), SequenceID: &number,
		}))
	}
	same(producer.LastSequenceID(), int64(3))
	producer.Close()
	// The client goes on behind what the broker says is the last.
	send(w.producer(options), "4")
	consumer := w.subscribe(pulsar.ConsumerOptions{})
	same(texts(take(consumer, 5)), numbers(0, 5))
	nothingMore(consumer)
}

func ownerKilled(w *world) {
	producer := w.producer(pulsar.ProducerOptions{BatchingMaxMessages: 10, SendTimeout: -1})
	consumer := w.subscribe(pulsar.ConsumerOptions{})
	var sent sync.WaitGroup
	sent.Add(10_000)
	for number := range 10_000 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(number))},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				check(err)
				sent.Done()
			})
		if number == 3_000 {
			fmt.Println("KILL")
		}
		if number%2 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	check(producer.Flush())
	sent.Wait()
	seen := map[string]bool{}
	order := []string{}
	for len(seen) < 10_000 {
		message := receive(consumer, receiveTimeout)
		holds(fmt.Sprintf("all messages come, not only %d", len(seen)), message != nil)
		if text := string(message.Payload()); !seen[text] {
			seen[text] = true
			order = append(order, text)
		}
		check(consumer.AckID(message.ID()))
	}
	same(order, numbers(0, 10_000))
}
