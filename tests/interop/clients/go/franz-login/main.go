// franz-go: log in by the security of the second argument, write a record to the topic of the third, and read it in a group.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type security struct{ Protocol, Mechanism, User, Password, Token, CA, Certificate string }

func options(given security) ([]kgo.Opt, error) {
	var chosen []kgo.Opt
	if strings.HasSuffix(given.Protocol, "SSL") {
		pem, err := os.ReadFile(given.CA)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		if given.Certificate != "" {
			pair, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		chosen = append(chosen, kgo.DialTLSConfig(config))
	}
	switch given.Mechanism {
	case "PLAIN":
		chosen = append(chosen, kgo.SASL(plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		chosen = append(chosen, kgo.SASL(oauth.Auth{Token: given.Token}.AsMechanism()))
	}
	return chosen, nil
}

func run() error {
	var given security
	if err := json.Unmarshal([]byte(os.Args[2]), &given); err != nil {
		return err
	}
	topic := os.Args[3]
	chosen, err := options(given)
	if err != nil {
		return err
	}
	chosen = append(chosen, kgo.SeedBrokers(os.Args[1]), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := kgo.NewClient(chosen...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
		return err
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return err
	}
	for _, record := range fetches.Records() {
		fmt.Println(string(record.Value))
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
