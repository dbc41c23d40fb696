package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

const (
	trialsAtATime  = 16
	messageTimeout = 90 * time.Second
)

// shape is what a client is given, and what it is to be told of the topic.
type shape struct {
	Name, Plugin, Params, URL, Trust, Topic string
	Verifies, Insecure                      bool
	ReceivesOnly                            bool `json:"receives_only"`
	Seconds                                 int
}

func init() {
	scenarios["credentials"] = credentials
}

// Tries shapes of credentials: standard input has a shape a line, as JSON, and a line of standard output with "=" before it has its name and
// result.
func credentials(*world) {
	var trials sync.WaitGroup
	var printing sync.Mutex
	places := make(chan struct{}, trialsAtATime)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var tried shape
		check(json.Unmarshal(lines.Bytes(), &tried))
		places <- struct{}{}
		trials.Add(1)
		go func() {
			defer trials.Done()
			result := tried.attempt()
			printing.Lock()
			defer printing.Unlock()
			fmt.Printf("=%s\n", must(json.Marshal([]string{tried.Name, result})))
			<-places
		}()
	}
	trials.Wait()
}

// authentication returns what the client's options take.
func (s *shape) authentication() (found pulsar.Authentication, err error) {
	parts := strings.Split(s.Params, ",")
	switch s.Plugin {
	case "":
		return nil, nil
	case "new token":
		return pulsar.NewAuthenticationToken(s.Params), nil
	case "new supplier":
		return pulsar.NewAuthenticationTokenFromSupplier(func() (string, error) {
			content, err := os.ReadFile(s.Params)
			return string(content), err
		}), nil
	case "new file":
		return pulsar.NewAuthenticationTokenFromFile(s.Params), nil
	case "new tls":
		return pulsar.NewAuthenticationTLS(parts[0], parts[1]), nil
	case "new basic":
		return pulsar.NewAuthenticationBasic(parts[0], parts[1])
	default:
		return pulsar.NewAuthentication(s.Plugin, s.Params)
	}
}

var making sync.Mutex

// newClient gives each client an HTTP transport of its own: this client puts its certificate into the one that the whole process shares.
func newClient(options pulsar.ClientOptions) (pulsar.Client, error) {
	making.Lock()
	defer making.Unlock()
	http.DefaultTransport = http.DefaultTransport.(*http.Transport).Clone()
	return pulsar.NewClient(options)
}

// attempt returns ok, or the name and text of the error.
func (s *shape) attempt() string {
	authentication, err := s.authentication()
	if err != nil {
		return failure(err)
	}
	seconds := time.Duration(s.Seconds) * time.Second
	client, err := newClient(pulsar.ClientOptions{
		URL:                        s.URL,
		Authentication:             authentication,
		TLSTrustCertsFilePath:      s.Trust,
		TLSValidateHostname:        s.Verifies,
		TLSAllowInsecureConnection: s.Insecure,
		OperationTimeout:           seconds,
		ConnectionTimeout:          seconds,
		Logger:                     log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	})
	if err != nil {
		return failure(err)
	}
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: s.Topic, SubscriptionName: "s"})
	if err != nil {
		return failure(err)
	}
	if !s.ReceivesOnly {
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: s.Topic})
		if err != nil {
			return failure(err)
		}
		_, err = producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("shown")})
		if err != nil {
			return failure(err)
		}
	}
	message := receive(consumer, messageTimeout)
	if message == nil || string(message.Payload()) != "shown" {
		return "another message"
	}
	return "ok"
}

// failure names the error: this client has errors of its own, of Go, with a status of HTTP, and of one word that the broker sent.
func failure(err error) string {
	var own *pulsar.Error
	name := fmt.Sprintf("%T", err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		name = "DeadlineExceeded"
	case errors.As(err, &own):
		name = fmt.Sprintf("Result %d", own.Result())
	case strings.HasPrefix(err.Error(), "Code: 401"):
		name = "Code 401"
	case !strings.Contains(err.Error(), " "):
		name = err.Error()
	}
	return fmt.Sprintf("%s: %v", name[strings.LastIndex(name, ".")+1:], err)
}
