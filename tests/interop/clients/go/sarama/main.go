// sarama, pinned to a broker version: version=0.8.2.2 makes it send what such a broker understood.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const share = 100
const patience = 30 * time.Second

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func key(number int) []byte { return fmt.Appendf(nil, "key %d", number) }

func value(number int) []byte {
	if number%10 == 9 {
		return nil
	}
	made := fmt.Appendf(nil, "value %d ", number)
	for index := range number % share {
		made = append(made, byte(number+31*index))
	}
	return made
}

func step(name string, run func() error) {
	told := map[string]string{"step": name, "result": "pass", "why": ""}
	if err := run(); err != nil {
		told["result"], told["why"] = "fail", err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}

type task struct {
	bootstrap    []string
	topic, group string
	version      sarama.KafkaVersion
}

func (t task) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = t.version
	config.ApiVersionsRequest = t.version.IsAtLeast(sarama.V0_10_0_0)
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	return config
}

func (t task) admin() error {
	admin, err := sarama.NewClusterAdmin(t.bootstrap, t.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	topic := t.topic + "-made"
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	described, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	if found := len(described[0].Partitions); found != 3 {
		return fmt.Errorf("%d partitions, not 3", found)
	}
	return admin.DeleteTopic(topic)
}

func (t task) produce(codec string, from int) error {
	config := t.config()
	config.Producer.Compression = codecs[codec]
	producer, err := sarama.NewSyncProducer(t.bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := from; number < from+share; number++ {
		message := &sarama.ProducerMessage{Topic: t.topic, Key: sarama.ByteEncoder(key(number))}
		if bytes := value(number); bytes != nil {
			message.Value = sarama.ByteEncoder(bytes)
		}
		messages = append(messages, message)
	}
	return producer.SendMessages(messages)
}

func check(message *sarama.ConsumerMessage, next int) error {
	same := bytes.Equal(message.Key, key(next)) && bytes.Equal(message.Value, value(next))
	if !same || (message.Value == nil) != (value(next) == nil) || message.Offset != int64(next) {
		return fmt.Errorf("record %d is %d %q %q", next, message.Offset, message.Key, message.Value)
	}
	return nil
}

func (t task) fetch(to int) error {
	consumer, err := sarama.NewConsumer(t.bootstrap, t.config())
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(t.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	deadline := time.After(patience)
	for next := range to {
		select {
		case message := <-partition.Messages():
			if err := check(message, next); err != nil {
				return err
			}
		case <-deadline:
			return fmt.Errorf("%d of %d records came", next, to)
		}
	}
	return nil
}

func (t task) offsets(to int) error {
	client, err := sarama.NewClient(t.bootstrap, t.config())
	if err != nil {
		return err
	}
	defer client.Close()
	first, err := client.GetOffset(t.topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	last, err := client.GetOffset(t.topic, 0, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	if first != 0 || last != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", first, last, to)
	}
	return nil
}

func (t task) commit() error {
	for round := range 2 { // the second run finds what the first one committed
		client, err := sarama.NewClient(t.bootstrap, t.config())
		if err != nil {
			return err
		}
		manager, err := sarama.NewOffsetManagerFromClient(t.group+"-alone", client)
		if err != nil {
			return err
		}
		partition, err := manager.ManagePartition(t.topic, 0)
		if err != nil {
			return err
		}
		if next, metadata := partition.NextOffset(); round == 1 && (next != 42 || metadata != "by hand") {
			return fmt.Errorf("%d %q", next, metadata)
		}
		partition.MarkOffset(42, "by hand")
		manager.Commit()
		partition.AsyncClose()
		if err := errors.Join(manager.Close(), client.Close()); err != nil {
			return err
		}
	}
	return nil
}

// member is a ConsumerGroupHandler that takes the records from `next` to `to`.
type member struct {
	next, to int
	failure  error
	done     context.CancelFunc
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer m.done()
	for m.next < m.to {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if m.failure = check(message, m.next); m.failure != nil {
				return m.failure
			}
			m.next++
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
	session.Commit()
	return nil
}

func (t task) join(from, to int) error {
	group, err := sarama.NewConsumerGroup(t.bootstrap, t.group, t.config())
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one := &member{next: from, to: to, done: cancel}
	if err := group.Consume(ctx, []string{t.topic}, one); err != nil {
		return err
	}
	if one.failure == nil && one.next != to {
		return fmt.Errorf("%d, not %d", one.next, to)
	}
	return one.failure
}

func main() {
	t := task{bootstrap: []string{os.Args[1]}, topic: os.Args[2], group: os.Args[3]}
	asked := strings.Split(os.Args[4], ",")
	lacks := ""
	for _, setting := range os.Args[5:] {
		if text, found := strings.CutPrefix(setting, "version="); found {
			version, err := sarama.ParseKafkaVersion(text)
			if err != nil {
				panic(err)
			}
			t.version = version
		}
		if text, found := strings.CutPrefix(setting, "lacks="); found {
			lacks = text
		}
	}
	first := share * len(asked)
	if !strings.Contains(lacks, "admin") {
		step("admin", t.admin)
	}
	for at, codec := range asked {
		step("produce "+codec, func() error { return t.produce(codec, at*share) })
	}
	step("fetch", func() error { return t.fetch(first) })
	step("offsets", func() error { return t.offsets(first) })
	step("commit", t.commit)
	if strings.Contains(lacks, "group") {
		return
	}
	step("group", func() error { return t.join(0, first) })
	step("resume", func() error {
		if err := t.produce("none", first); err != nil {
			return err
		}
		return t.join(first, first+share)
	})
}
