// franz-go: what contract.py describes, with its consumer in and out of a group and its admin client.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const share = 100
const patience = 30 * time.Second

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
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

func (t task) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(t.bootstrap), kgo.AllowAutoTopicCreation())...)
}

func (t task) admin() error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, topic := kadm.NewClient(client), t.topic+"-made"
	if _, err := admin.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
		return err
	}
	listed, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	if found := len(listed[topic].Partitions); found != 3 {
		return fmt.Errorf("%d partitions, not 3", found)
	}
	_, err = admin.DeleteTopic(ctx, topic)
	return err
}

func (t task) produce(codec string, from int) error {
	client, err := t.client(kgo.ProducerBatchCompression(codecs[codec]), kgo.DefaultProduceTopic(t.topic),
		kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var records []*kgo.Record
	for number := from; number < from+share; number++ {
		records = append(records, &kgo.Record{Key: key(number), Value: value(number)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func take(client *kgo.Client, from, to int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for next := from; next < to; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("at %d: %w", next, err)
		}
		for _, record := range fetches.Records() {
			same := bytes.Equal(record.Key, key(next)) && bytes.Equal(record.Value, value(next))
			if !same || (record.Value == nil) != (value(next) == nil) || record.Offset != int64(next) {
				return fmt.Errorf("record %d is %q %q", next, record.Key, record.Value)
			}
			next++
		}
	}
	quiet, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if more := client.PollFetches(quiet).NumRecords(); more != 0 {
		return fmt.Errorf("%d more records", more)
	}
	return nil
}

func (t task) fetch(to int) error {
	client, err := t.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer client.Close()
	return take(client, 0, to)
}

func (t task) offsets(to int) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin := kadm.NewClient(client)
	first, err := admin.ListStartOffsets(ctx, t.topic)
	if err != nil {
		return err
	}
	last, err := admin.ListEndOffsets(ctx, t.topic)
	if err != nil {
		return err
	}
	if one, two := first[t.topic][0].Offset, last[t.topic][0].Offset; one != 0 || two != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", one, two, to)
	}
	return nil
}

func (t task) commit() error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, group := kadm.NewClient(client), t.group+"-alone"
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: t.topic, Partition: 0, At: 42, LeaderEpoch: -1, Metadata: "by hand"})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	held, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	if found := held[t.topic][0]; found.At != 42 || found.Metadata != "by hand" {
		return fmt.Errorf("%d %q", found.At, found.Metadata)
	}
	return nil
}

func (t task) join(from, to int) error {
	client, err := t.client(kgo.ConsumerGroup(t.group), kgo.ConsumeTopics(t.topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := take(client, from, to); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.CommitUncommittedOffsets(ctx)
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
