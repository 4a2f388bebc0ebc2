// Goroutines that leave their stack for that of their thread: to have a larger one, and to be unwound.
//
//	goexit > main.worker > main.deep, 200 times > runtime.morestack > runtime.newstack
//	goexit > main.main > main.describe > runtime.callers > runtime.systemstack > runtime.callers.func1
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"
)

//go:noinline
func deep(depth int, words [16]uint64) uint64 {
	if depth == 0 {
		return words[0]
	}
	words[depth&15]++
	return deep(depth-1, words) + 1
}

//go:noinline
func worker(done chan uint64) {
	done <- deep(200, [16]uint64{})
}

// A new goroutine has a small stack.
//
//go:noinline
func grow() {
	done := make(chan uint64)
	go worker(done)
	<-done
}

//go:noinline
func describe(callers []uintptr) {
	for count := 0; count < 20; count++ {
		runtime.Callers(0, callers)
	}
}

// Ends the process when its input is closed, or after the seconds of the first argument.
func endInTime() {
	seconds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { os.Exit(0) })
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func main() {
	go endInTime()
	fmt.Printf("ready %d\n", os.Getpid())
	callers := make([]uintptr, 32)
	for {
		grow()
		describe(callers)
	}
}
