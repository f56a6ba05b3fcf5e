// The same routes in Go's own router: servers PORT
//
// A handler answers with its name, and the route that the proxy says it took (x-route).
package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
)

func main() {
	routes := map[string]string{
		"login":  "/login",
		"admin":  "/admin/",
		"me":     "/users/@me",
		"cancel": "/v1/jobs:cancel",
		"user":   "/users/",
		"health": "/health",
		"report": "/health.json",
	}
	router := http.NewServeMux()
	for name, path := range routes {
		name := name
		router.HandleFunc(path, func(response http.ResponseWriter, request *http.Request) {
			route := request.Header.Get("x-route")
			if route == "" {
				route = "-"
			}
			fmt.Fprintf(response, "%s - %s\n", name, route)
		})
	}
	// A slash at the end makes no difference to routes of the proxy; to this router it is another path.
	withoutSlash := func(response http.ResponseWriter, request *http.Request) {
		if path := request.URL.Path; len(path) > 1 && request.Header.Get("x-route") != "" {
			request.URL.Path = strings.TrimSuffix(path, "/")
		}
		router.ServeHTTP(response, request)
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(withoutSlash)))
}
