// Package contract has what contract.py describes, as far as it is the same for every client of this module: arguments,
// records, and the order and the report of the steps.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// Share is the number of records of one codec.
const Share = 100

// Patience is the time that a request or a read may take.
const Patience = 30 * time.Second

// Task has the arguments of a program.
type Task struct {
	Bootstrap, Topic, Group string
	Codecs                  []string
	Settings                map[string]string
}

// NewTask reads the arguments.
func NewTask() Task {
	task := Task{os.Args[1], os.Args[2], os.Args[3], strings.Split(os.Args[4], ","), map[string]string{}}
	for _, setting := range os.Args[5:] {
		name, value, _ := strings.Cut(setting, "=")
		task.Settings[name] = value
	}
	return task
}

// Key returns the key of a record.
func Key(number int) []byte { return fmt.Appendf(nil, "key %d", number) }

// Value returns the value of a record, nil for a null one.
func Value(number int) []byte {
	if number%10 == 9 {
		return nil
	}
	made := fmt.Appendf(nil, "value %d ", number)
	for index := range number % Share {
		made = append(made, byte(number+31*index))
	}
	return made
}

// Check returns an error unless a record is the one with this number.
func Check(number int, key, value []byte, offset int64) error {
	same := bytes.Equal(key, Key(number)) && bytes.Equal(value, Value(number))
	if !same || (value == nil) != (Value(number) == nil) || offset != int64(number) {
		return fmt.Errorf("record %d is %q %q at %d", number, key, value, offset)
	}
	return nil
}

// Client does the steps; the numbers of records are exclusive where they end.
type Client interface {
	Admin() error
	Produce(codec string, from int) error
	Fetch(to int) error
	Offsets(to int) error
	Commit() error
	Join(from, to int) error
}

// Run does all steps that the client does not lack, and reports them.
func (t Task) Run(client Client) {
	first := Share * len(t.Codecs)
	t.step("admin", client.Admin)
	for at, codec := range t.Codecs {
		t.step("produce "+codec, func() error { return client.Produce(codec, at*Share) })
	}
	t.step("fetch", func() error { return client.Fetch(first) })
	t.step("offsets", func() error { return client.Offsets(first) })
	t.step("commit", client.Commit)
	t.step("group", func() error { return client.Join(0, first) })
	t.step("resume", func() error {
		if err := client.Produce("none", first); err != nil {
			return err
		}
		return client.Join(first, first+Share)
	})
}

func (t Task) step(name string, run func() error) {
	for _, lacking := range strings.Split(t.Settings["lacks"], ",") {
		if name == lacking {
			return
		}
	}
	told := map[string]string{"step": name, "result": "pass", "why": ""}
	if err := run(); err != nil {
		told["result"], told["why"] = "fail", err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}
