// kafka-go: what contract.py describes, with its Writer, its Reader in and out of a group, and its Client.
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

	"github.com/segmentio/kafka-go"
)

const share = 100
const patience = 30 * time.Second

var codecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
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

type task struct{ bootstrap, topic, group string }

func (t task) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(t.bootstrap), Timeout: patience}
}

func (t task) admin() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, topic := t.client(), t.topic+"-made"
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

func (t task) produce(codec string, from int) error {
	writer := &kafka.Writer{Addr: kafka.TCP(t.bootstrap), Topic: t.topic, RequiredAcks: kafka.RequireAll,
		Compression: codecs[codec], BatchTimeout: 20 * time.Millisecond, AllowAutoTopicCreation: true}
	defer writer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var messages []kafka.Message
	for number := from; number < from+share; number++ {
		messages = append(messages, kafka.Message{Key: key(number), Value: value(number)})
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
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for next := from; next < to; next++ {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return fmt.Errorf("at %d: %w", next, err)
		}
		same := bytes.Equal(message.Key, key(next)) && bytes.Equal(message.Value, value(next))
		if !same || (message.Value == nil) != (value(next) == nil) || message.Offset != int64(next) {
			return fmt.Errorf("record %d is %q %q", next, message.Key, message.Value)
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

func (t task) fetch(to int) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{t.bootstrap}, Topic: t.topic, MaxWait: 50 * time.Millisecond})
	defer reader.Close()
	return take(reader, 0, to)
}

func (t task) offsets(to int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	listed, err := t.client().ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		t.topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
	if err != nil {
		return err
	}
	found := listed.Topics[t.topic][0]
	if found.Error != nil {
		return found.Error
	}
	if found.FirstOffset != 0 || found.LastOffset != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", found.FirstOffset, found.LastOffset, to)
	}
	return nil
}

func (t task) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, group := t.client(), t.group+"-alone"
	committed, err := client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{t.topic: {{Partition: 0, Offset: 42, Metadata: "by hand"}}}})
	if err != nil {
		return err
	}
	if err := committed.Topics[t.topic][0].Error; err != nil {
		return err
	}
	held, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{t.topic: {0}}})
	if err != nil {
		return err
	}
	if found := held.Topics[t.topic][0]; found.CommittedOffset != 42 || found.Metadata != "by hand" {
		return fmt.Errorf("%d %q", found.CommittedOffset, found.Metadata)
	}
	return nil
}

func (t task) join(from, to int) error {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{t.bootstrap}, Topic: t.topic, GroupID: t.group,
		StartOffset: kafka.FirstOffset, MaxWait: 50 * time.Millisecond})
	defer reader.Close()
	return take(reader, from, to)
}

func main() {
	t := task{os.Args[1], os.Args[2], os.Args[3]}
	asked := strings.Split(os.Args[4], ",")
	first := share * len(asked)
	step("admin", t.admin)
	for at, codec := range asked {
		step("produce "+codec, func() error { return t.produce(codec, at*share) })
	}
	step("fetch", func() error { return t.fetch(first) })
	step("offsets", func() error { return t.offsets(first) })
	step("commit", t.commit)
	step("group", func() error { return t.join(0, first) })
	step("resume", func() error {
		if err := t.produce("none", first); err != nil {
			return err
		}
		return t.join(first, first+share)
	})
}
