// franz-go: what contract.py describes, with its consumer in and out of a group and its admin client.
package main

import (
	"context"
	"fmt"
	"time"

	"interop/contract"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type task struct{ contract.Task }

func (t task) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(t.Bootstrap), kgo.AllowAutoTopicCreation())...)
}

func (t task) Admin() error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	admin, topic := kadm.NewClient(client), t.Topic+"-made"
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

func (t task) Produce(codec string, from int) error {
	client, err := t.client(kgo.ProducerBatchCompression(codecs[codec]), kgo.DefaultProduceTopic(t.Topic),
		kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	var records []*kgo.Record
	for number := from; number < from+contract.Share; number++ {
		records = append(records, &kgo.Record{Key: contract.Key(number), Value: contract.Value(number)})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func take(client *kgo.Client, from, to int) error {
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	for next := from; next < to; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("at %d: %w", next, err)
		}
		for _, record := range fetches.Records() {
			if err := contract.Check(next, record.Key, record.Value, record.Offset); err != nil {
				return err
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

func (t task) Fetch(to int) error {
	client, err := t.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return err
	}
	defer client.Close()
	return take(client, 0, to)
}

func (t task) Offsets(to int) error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	admin := kadm.NewClient(client)
	first, err := admin.ListStartOffsets(ctx, t.Topic)
	if err != nil {
		return err
	}
	last, err := admin.ListEndOffsets(ctx, t.Topic)
	if err != nil {
		return err
	}
	if one, two := first[t.Topic][0].Offset, last[t.Topic][0].Offset; one != 0 || two != int64(to) {
		return fmt.Errorf("%d and %d, not 0 and %d", one, two, to)
	}
	return nil
}

func (t task) Commit() error {
	client, err := t.client()
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	admin, group := kadm.NewClient(client), t.Group+"-alone"
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: t.Topic, Partition: 0, At: 42, LeaderEpoch: -1, Metadata: "by hand"})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return err
	}
	held, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	if found := held[t.Topic][0]; found.At != 42 || found.Metadata != "by hand" {
		return fmt.Errorf("%d %q", found.At, found.Metadata)
	}
	return nil
}

func (t task) Join(from, to int) error {
	client, err := t.client(kgo.ConsumerGroup(t.Group), kgo.ConsumeTopics(t.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := take(client, from, to); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), contract.Patience)
	defer cancel()
	return client.CommitUncommittedOffsets(ctx)
}

func main() {
	task := task{contract.NewTask()}
	task.Run(task)
}
