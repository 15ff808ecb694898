// SPDX-License-Identifier: GPL-2.0-only

// A client of go-criu, as test/zonetests/rpc.py runs it:
//
//	go-client dump|restore CRIU CONFIG IMAGES [PID]
//
// It knows nothing of zones: they come from the configuration file.
package main

import (
	"fmt"
	"os"
	"strconv"

	criu "github.com/checkpoint-restore/go-criu/v6"
	"github.com/checkpoint-restore/go-criu/v6/rpc"
	"google.golang.org/protobuf/proto"
)

// Called by go-criu; the empty ones are those that do nothing here.
type notify struct{ criu.NoNotify }

func (notify) PostDump() error {
	fmt.Println("notify post-dump")
	return nil
}

func (notify) PostRestore(pid int32) error {
	fmt.Println("pid", pid)
	return nil
}

func run(op, binary, config, images string, pid int) error {
	dir, err := os.Open(images)
	if err != nil {
		return err
	}
	defer dir.Close()
	opts := &rpc.CriuOpts{
		ImagesDirFd: proto.Int32(int32(dir.Fd())),
		LogLevel:    proto.Int32(4),
		LogFile:     proto.String("go.log"),
		ConfigFile:  proto.String(config),
	}
	c := criu.MakeCriu()
	c.SetCriuPath(binary)
	if op == "dump" {
		opts.Pid = proto.Int32(int32(pid))
		return c.Dump(opts, notify{})
	}
	return c.Restore(opts, notify{})
}

func main() {
	pid := 0
	if len(os.Args) > 5 {
		pid, _ = strconv.Atoi(os.Args[5])
	}
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: go-client dump|restore CRIU CONFIG IMAGES [PID]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], pid); err != nil {
		fmt.Fprintln(os.Stderr, "go-client:", err)
		os.Exit(1)
	}
}
