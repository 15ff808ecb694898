module zns-criu/go-client

go 1.16

require (
	github.com/checkpoint-restore/go-criu/v6 v6.3.0
	google.golang.org/protobuf v1.28.1
)
