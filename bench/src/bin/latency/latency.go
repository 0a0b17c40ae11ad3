// Times readings of all statistics beside a goroutine that allocates trees, as Go's BenchmarkReadMemStatsLatency and
// BenchmarkReadMetricsLatency do. Prints three quantiles in nanoseconds for each kind of reading.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"time"
)

type node struct{ children [16]*node }

func tree(depth int) *node {
	made := new(node)
	for child := range made.children {
		if depth > 0 {
			made.children[child] = tree(depth - 1)
		}
	}
	return made
}

var kept *node

func main() {
	readings, _ := strconv.Atoi(os.Args[1])
	for range runtime.GOMAXPROCS(0) - 1 {
		go func() {
			for {
				kept = tree(4)
			}
		}()
	}
	var stats runtime.MemStats
	samples := make([]metrics.Sample, 0)
	for _, description := range metrics.All() {
		samples = append(samples, metrics.Sample{Name: description.Name})
	}
	for _, read := range []func(){func() { runtime.ReadMemStats(&stats) }, func() { metrics.Read(samples) }} {
		times := make([]time.Duration, readings)
		for at := range times {
			began := time.Now()
			read()
			times[at] = time.Since(began)
			time.Sleep(100 * time.Microsecond)
		}
		slices.Sort(times)
		for _, part := range []int{50, 90, 99} {
			fmt.Print(times[len(times)*part/100].Nanoseconds(), " ")
		}
		fmt.Println()
	}
}
