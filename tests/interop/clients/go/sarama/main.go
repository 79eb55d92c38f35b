// sarama, pinned to a broker version: version=0.8.2.2 makes it send what such a broker understood.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"interop/contract"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

type task struct {
	contract.Task
	version sarama.KafkaVersion
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

func (t task) Admin() error {
	admin, err := sarama.NewClusterAdmin([]string{t.Bootstrap}, t.config())
	if err != nil {
		return err
	}
	defer admin.Close()
	topic := t.Topic + "-made"
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

func (t task) Produce(codec string, from int) error {
	config := t.config()
	config.Producer.Compression = codecs[codec]
	producer, err := sarama.NewSyncProducer([]string{t.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for number := from; number < from+contract.Share; number++ {
		message := &sarama.ProducerMessage{Topic: t.Topic, Key: sarama.ByteEncoder(contract.Key(number))}
		if bytes := contract.Value(number); bytes != nil {
			message.Value = sarama.ByteEncoder(bytes)
		}
		messages = append(messages, message)
	}
	return producer.SendMessages(messages)
}

func check(message *sarama.ConsumerMessage, next int) error {
	return contract.Check(next, message.Key, message.Value, message.Offset)
}

func (t task) Fetch(to int) error {
	consumer, err := sarama.NewConsumer([]string{t.Bootstrap}, t.config())
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(t.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	deadline := time.After(contract.Patience)
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

func (t task) Offsets(to int) error {
	client, err := sarama.NewClient([]string{t.Bootstrap}, t.config())
	if err != nil {
		return err
	}
	defer client.Close()
	first, err := client.GetOffset(t.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	last, err := client.GetOffset(t.Topic, 0, sarama.OffsetNewest)
	if err != nil {
		return err
	}
	if first != 0 || last != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", first, last, to)
	}
	return nil
}

func (t task) Commit() error {
	for round := range 2 { // the second run finds what the first one committed
		client, err := sarama.NewClient([]string{t.Bootstrap}, t.config())
		if err != nil {
			return err
		}
		manager, err := sarama.NewOffsetManagerFromClient(t.Group+"-alone", client)
		if err != nil {
			return err
		}
		partition, err := manager.ManagePartition(t.Topic, 0)
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

func (t task) Join(from, to int) error {
	group, err := sarama.NewConsumerGroup([]string{t.Bootstrap}, t.Group, t.config())
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	one := &member{next: from, to: to, done: cancel}
	if err := group.Consume(ctx, []string{t.Topic}, one); err != nil {
		return err
	}
	if one.failure == nil && one.next != to {
		return fmt.Errorf("%d, not %d", one.next, to)
	}
	return one.failure
}

func main() {
	task := task{Task: contract.NewTask()}
	version, err := sarama.ParseKafkaVersion(task.Settings["version"])
	if err != nil {
		panic(err)
	}
	task.version = version
	task.Run(task)
}
