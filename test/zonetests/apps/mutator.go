// SPDX-License-Identifier: GPL-2.0-only
// mutator DIR: maps and slices of goroutines that change all the time; each knows what it must be.
package main

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"
)

const blocks = 64

type worker struct {
	sync.Mutex
	number, steps int
	known         map[int]int
	block         [blocks][]byte
}

func content(number, n, step int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d %d %d;", number, n, step)), 4000)
}

func (w *worker) run() {
	for {
		w.Lock()
		n := w.steps % blocks
		w.known[n] = w.steps
		w.block[n] = content(w.number, n, w.steps)
		w.steps++
		w.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func (w *worker) check() (int, bool) {
	w.Lock()
	defer w.Unlock()
	for n, step := range w.known {
		if !bytes.Equal(w.block[n], content(w.number, n, step)) {
			return n, false
		}
	}
	return w.steps, true
}

func verdict(workers []*worker) string {
	steps := 0
	for _, w := range workers {
		n, right := w.check()
		if !right {
			return fmt.Sprintf("FAIL block %d of worker %d", n, w.number)
		}
		steps += n
	}
	return fmt.Sprintf("PASS %d", steps)
}

func main() {
	dir := os.Args[1]
	var workers []*worker
	for n := 0; n < 4; n++ {
		workers = append(workers, &worker{number: n, known: map[int]int{}})
		go workers[n].run()
	}
	os.WriteFile(dir+"/ready", nil, 0600)
	for ; ; time.Sleep(20 * time.Millisecond) {
		if os.Remove(dir+"/ask") == nil {
			os.WriteFile(dir+"/verdict.new", []byte(verdict(workers)), 0600)
			os.Rename(dir+"/verdict.new", dir+"/verdict")
		}
	}
}
