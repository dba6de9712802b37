"""The SDK's asynchronous API, written by hand; one file for each object that a program makes."""
