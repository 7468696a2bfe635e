// Sends records with franz-go as the Python side of the benchmarks asks for it, and prints what it measured as JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// settings is what benchmarks/clients/franz_go.py gives.
type settings struct {
	Servers     string  `json:"servers"`
	Topic       string  `json:"topic"`
	Workload    string  `json:"workload"`
	Records     int     `json:"records"`
	WarmUp      int     `json:"warm_up"`
	Values      string  `json:"values"`
	Keys        string  `json:"keys"`
	Partitions  int32   `json:"partitions"`
	Codec       string  `json:"codec"`
	Defaults    bool    `json:"defaults"`
	BatchSize   int32   `json:"batch_size"`
	LingerMs    int     `json:"linger_ms"`
	Concurrency int     `json:"concurrency"`
	Seconds     float64 `json:"seconds"`
	Mock        bool    `json:"mock"`
}

type sender struct {
	settings
	client *kgo.Client
	values [][]byte
	keys   [][]byte
}

func main() {
	var s sender
	check(json.Unmarshal([]byte(os.Args[1]), &s.settings))
	s.values = lines(s.Values)
	if s.Keys != "" {
		s.keys = lines(s.Keys)
	}
	client, err := kgo.NewClient(s.options()...)
	check(err)
	s.client = client
	figures := map[string]func() map[string]float64{
		"pipelined":  s.pipelined,
		"concurrent": s.concurrent,
		"lone":       s.lone,
		"idle":       s.idle,
	}[s.Workload]()
	check(json.NewEncoder(os.Stdout).Encode(figures))
}

func (s *sender) options() []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(s.Servers), kgo.RequiredAcks(kgo.AllISRAcks())}
	if s.Mock { // it cannot read what the mock cluster answers to newer versions of ApiVersions
		options = append(options, kgo.MaxVersions(kversion.V2_3_0()))
	}
	if s.Workload == "lone" {
		options = append(options, kgo.ProducerLinger(0))
	}
	if !s.Defaults {
		codec := map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		}[s.Codec]
		options = append(options,
			kgo.ProducerBatchMaxBytes(s.BatchSize),
			kgo.ProducerLinger(time.Duration(s.LingerMs)*time.Millisecond),
			kgo.ProducerBatchCompression(codec),
			kgo.MaxBufferedRecords(100_000),
		)
	}
	if s.Partitions > 0 {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return options
}

// record is the one with that number in a burst.
func (s *sender) record(number int) *kgo.Record {
	record := &kgo.Record{Topic: s.Topic, Value: s.values[number%len(s.values)]}
	if s.keys != nil {
		record.Key = s.keys[number%len(s.keys)]
	}
	if s.Partitions > 0 {
		record.Partition = int32(number) % s.Partitions
	}
	return record
}

// burst produces with a callback for each record, and waits for all of them.
func (s *sender) burst(count int) {
	var waiting sync.WaitGroup
	waiting.Add(count)
	delivered := func(_ *kgo.Record, err error) {
		check(err)
		waiting.Done()
	}
	for number := range count {
		s.client.Produce(context.Background(), s.record(number), delivered)
	}
	waiting.Wait()
}

func (s *sender) pipelined() map[string]float64 {
	s.burst(s.WarmUp)
	watch := start()
	s.burst(s.Records)
	return s.throughput(watch)
}

func (s *sender) concurrent() map[string]float64 {
	s.together(s.WarmUp)
	watch := start()
	s.together(s.Records)
	return s.throughput(watch)
}

// together lets many goroutines await one record after the other.
func (s *sender) together(count int) {
	var working sync.WaitGroup
	for worker := range s.Concurrency {
		share := count / s.Concurrency
		if worker < count%s.Concurrency {
			share++
		}
		working.Go(func() {
			for number := range share {
				s.one(number)
			}
		})
	}
	working.Wait()
}

func (s *sender) one(number int) {
	check(s.client.ProduceSync(context.Background(), s.record(number)).FirstErr())
}

func (s *sender) lone() map[string]float64 {
	for number := range s.WarmUp {
		s.one(number)
	}
	watch := start()
	seconds := make([]float64, s.Records)
	for number := range seconds {
		began := time.Now()
		s.one(number)
		seconds[number] = time.Since(began).Seconds()
	}
	_, cpu, _ := watch.stop()
	slices.Sort(seconds)
	at := func(share float64) float64 {
		return seconds[min(len(seconds)-1, int(float64(len(seconds))*share))] * 1e6
	}
	return map[string]float64{
		"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "cpu_us": cpu / float64(s.Records) * 1e6,
	}
}

func (s *sender) idle() map[string]float64 {
	s.burst(s.WarmUp + s.Records)
	watch := start()
	time.Sleep(time.Duration(s.Seconds * float64(time.Second)))
	seconds, cpu, wakeUps := watch.stop()
	wakeUps = max(wakeUps-1, 0) // that at the end of the sleep
	return map[string]float64{"wake_ups_per_s": wakeUps / seconds, "cpu_percent": cpu / seconds * 100}
}

func (s *sender) throughput(watch stopwatch) map[string]float64 {
	seconds, cpu, _ := watch.stop()
	records := float64(s.Records)
	return map[string]float64{
		"records_per_s": records / seconds,
		"mb_per_s":      records * float64(len(s.values[0])) / seconds / 1e6,
		"cpu_us":        cpu / records * 1e6,
	}
}

// stopwatch measures seconds, CPU seconds of the process, and how often its threads slept and were woken.
type stopwatch struct {
	began time.Time
	usage syscall.Rusage
}

func start() stopwatch {
	return stopwatch{time.Now(), usage()}
}

func (w stopwatch) stop() (seconds, cpu, wakeUps float64) {
	now := usage()
	cpu = float64(now.Utime.Nano()+now.Stime.Nano()-w.usage.Utime.Nano()-w.usage.Stime.Nano()) / 1e9
	return time.Since(w.began).Seconds(), cpu, float64(now.Nvcsw - w.usage.Nvcsw)
}

func usage() syscall.Rusage {
	var found syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &found))
	return found
}

func lines(path string) [][]byte {
	content, err := os.ReadFile(path)
	check(err)
	return bytes.Split(content, []byte("\n"))
}

func check(err error) {
	if err != nil {
		log.Fatal(fmt.Errorf("franz-go: %w", err))
	}
}
