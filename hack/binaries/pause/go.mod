module fedsilo.io/hack/pause

go 1.26.0
