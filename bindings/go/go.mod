module libato/ato

go 1.19
