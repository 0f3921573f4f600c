#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Notes over HTTP: POST / adds one, and answers when it is durable; GET / shows all. Nothing in it knows of libato.
#     ato sqlite --path /srv/notes python3 notes.py /srv/notes/notes.db 8080
#     curl -d 'buy milk' localhost:8080; curl localhost:8080
import http.server
import signal
import sqlite3
import sys

PATH, PORT = sys.argv[1], int(sys.argv[2])


def connect():
    return sqlite3.connect(PATH, isolation_level=None, timeout=5)


class Notes(http.server.BaseHTTPRequestHandler):
    def setup(self):
        super().setup()
        self.notes = connect()

    def finish(self):
        self.notes.close()
        super().finish()

    def answer(self, status, text):
        self.send_response(status)
        self.send_header('Content-Length', str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        rows = self.notes.execute('SELECT id, note FROM notes ORDER BY id')
        self.answer(200, ''.join(f'{number} {note}\n' for number, note in rows))

    def do_POST(self):
        note = self.rfile.read(int(self.headers['Content-Length'])).decode()
        number = self.notes.execute('INSERT INTO notes(note) VALUES(?)', (note,)).lastrowid
        self.answer(201, f'{number}\n')

    def log_message(self, *args):
        pass


database = connect()  # stays open: the end of a request is not the last close, which would make the file plain each time
database.execute('CREATE TABLE IF NOT EXISTS notes(id INTEGER PRIMARY KEY, note TEXT)')
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.ThreadingHTTPServer(('localhost', PORT), Notes).serve_forever()
