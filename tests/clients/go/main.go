// Apache Pulsar's official Go client, by its own words only: main SCENARIO SERVICE_URL ADMIN_URL NAME.
//
// What this client has not: a time after which what is unacknowledged comes again (ack_timeout), and producers that fence others
// (a part of producer_fencing).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const receiveTimeout = 20 * time.Second

// world is what one scenario works with.
type world struct {
	client     pulsar.Client
	serviceURL string
	adminURL   string
	topic      string
}

var scenarios = map[string]func(*world){}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func same[T any](found, wanted T) {
	if f, w := fmt.Sprintf("%#v", found), fmt.Sprintf("%#v", wanted); f != w {
		panic(fmt.Sprintf("found %s, wanted %s", f, w))
	}
}

func holds(what string, condition bool) {
	if !condition {
		panic("it does not hold: " + what)
	}
}

// refused wants work to fail with an error that has this word.
func refused(word string, work func() error) {
	err := work()
	holds(fmt.Sprintf("%v says %s", err, word), err != nil && strings.Contains(err.Error(), word))
}

// until waits for a state; it fails only when the state never comes.
func until(what string, condition func() bool) {
	deadline := time.Now().Add(receiveTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			panic("it never came: " + what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) admin(method, path string, body any) map[string]any {
	var data []byte
	if body != nil {
		data = must(json.Marshal(body))
	}
	request := must(http.NewRequest(method, w.adminURL+path, bytes.NewReader(data)))
	request.Header.Set("Content-Type", "application/json")
	response := must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	holds(method+" "+path+": "+response.Status, response.StatusCode < 300)
	var found map[string]any
	_ = json.NewDecoder(response.Body).Decode(&found)
	return found
}

func (w *world) adminPath() string {
	return "/admin/v2/" + strings.Replace(w.topic, "://", "/", 1)
}

func (w *world) producer(options pulsar.ProducerOptions) pulsar.Producer {
	if options.Topic == "" {
		options.Topic = w.topic
	}
	return must(w.client.CreateProducer(options))
}

// plain publishes message by message.
func (w *world) plain() pulsar.Producer {
	return w.producer(pulsar.ProducerOptions{DisableBatching: true})
}

func (w *world) subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.Topic == "" && options.TopicsPattern == "" {
		options.Topic = w.topic
	}
	if options.SubscriptionName == "" {
		options.SubscriptionName = "s"
	}
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	options.AckWithResponse = true
	return must(w.client.Subscribe(options))
}

func send(producer pulsar.Producer, text string) pulsar.MessageID {
	return must(producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(text)}))
}

func sendNumbers(producer pulsar.Producer, first, end int) {
	for number := first; number < end; number++ {
		send(producer, strconv.Itoa(number))
	}
}

// receive returns nil when nothing comes in time.
func receive(consumer pulsar.Consumer, timeout time.Duration) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		panic(err)
	}
	return message
}

func takeUnacknowledged(consumer pulsar.Consumer, count int) []pulsar.Message {
	var messages []pulsar.Message
	for len(messages) < count {
		message := receive(consumer, receiveTimeout)
		holds(fmt.Sprintf("%d messages come, not only %d", count, len(messages)), message != nil)
		messages = append(messages, message)
	}
	return messages
}

func take(consumer pulsar.Consumer, count int) []pulsar.Message {
	messages := takeUnacknowledged(consumer, count)
	for _, message := range messages {
		check(consumer.Ack(message))
	}
	return messages
}

func texts(messages []pulsar.Message) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Payload()))
	}
	return found
}

func numbers(first, end int) []string {
	found := []string{}
	for number := first; number < end; number++ {
		found = append(found, strconv.Itoa(number))
	}
	return found
}

func nothingMore(consumer pulsar.Consumer) {
	if message := receive(consumer, 300*time.Millisecond); message != nil {
		panic(fmt.Sprintf("one more message: %q at %v", message.Payload(), message.ID()))
	}
}

func main() {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL:              os.Args[2],
		OperationTimeout: 60 * time.Second,
		Logger:           log.NewLoggerWithSlog(logger),
	}))
	defer func() {
		if found := recover(); found != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", found, debug.Stack())
			os.Exit(1)
		}
	}()
	scenarios[os.Args[1]](&world{client, os.Args[2], os.Args[3], "persistent://public/default/" + os.Args[4]})
	client.Close()
}
