// kafka-go: what contract.py describes, with its Writer, its Reader in and out of a group, and its Client.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"interop/contract"

	"github.com/segmentio/kafka-go"
)

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

type task struct{ contract.Task }

func (t task) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(t.Bootstrap), Timeout: contract.Patience}
}

func (t task) Admin() error {
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	client, topic := t.client(), t.Topic+"-made"
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	if err := created.Errors[topic]; err != nil {
		return err
	}
	seen, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	if found := len(seen.Topics[0].Partitions); found != 3 {
		return fmt.Errorf("%d partitions, not 3", found)
	}
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

func (t task) Produce(codec string, from int) error {
	writer := &kafka.Writer{Addr: kafka.TCP(t.Bootstrap), Topic: t.Topic, RequiredAcks: kafka.RequireAll,
		Compression: codecs[codec], BatchTimeout: 20 * time.Millisecond, AllowAutoTopicCreation: true}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	var messages []kafka.Message
	for number := from; number < from+contract.Share; number++ {
		messages = append(messages, kafka.Message{Key: contract.Key(number), Value: contract.Value(number)})
	}
	for {
		err := writer.WriteMessages(ctx, messages...)
		// The topic is being created: the writer does not ask again by itself.
		if !errors.Is(err, kafka.UnknownTopicOrPartition) && !errors.Is(err, kafka.LeaderNotAvailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func take(reader *kafka.Reader, from, to int) error {
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	for next := from; next < to; next++ {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("at %d: %w", next, err)
		}
		if err := contract.Check(next, message.Key, message.Value, message.Offset); err != nil {
			return err
		}
		if next == to-1 && reader.Config().GroupID != "" {
			if err := reader.CommitMessages(ctx, message); err != nil {
				return err
			}
		}
	}
	quiet, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if message, err := reader.FetchMessage(quiet); err == nil {
		return fmt.Errorf("one more record, %q", message.Key)
	}
	return nil
}

func (t task) Fetch(to int) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{t.Bootstrap}, Topic: t.Topic, MaxWait: 50 * time.Millisecond})
	defer reader.Close()
	return take(reader, 0, to)
}

func (t task) Offsets(to int) error {
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	listed, err := t.client().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		t.Topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
	if err != nil {
		return err
	}
	found := listed.Topics[t.Topic][0]
	if found.Error != nil {
		return found.Error
	}
	if found.FirstOffset != 0 || found.LastOffset != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", found.FirstOffset, found.LastOffset, to)
	}
	return nil
}

func (t task) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	client, group := t.client(), t.Group+"-alone"
	committed, err := client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{t.Topic: {{Partition: 0, Offset: 42, Metadata: "by hand"}}}})
	if err != nil {
		return err
	}
	if err := committed.Topics[t.Topic][0].Error; err != nil {
		return err
	}
	held, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{t.Topic: {0}}})
	if err != nil {
		return err
	}
	if found := held.Topics[t.Topic][0]; found.CommittedOffset != 42 || found.Metadata != "by hand" {
		return fmt.Errorf("%d %q", found.CommittedOffset, found.Metadata)
	}
	return nil
}

func (t task) Join(from, to int) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{t.Bootstrap}, Topic: t.Topic, GroupID: t.Group,
		StartOffset: kafka.FirstOffset, MaxWait: 50 * time.Millisecond})
	defer reader.Close()
	return take(reader, from, to)
}

func main() {
	task := task{contract.NewTask()}
	task.Run(task)
}
