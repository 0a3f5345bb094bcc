"""A stand-in for Ray: an image whose `ray` answers what KubeRay asks, and nothing more.

Real are KubeRay, what it makes and what it decides from the answers. The stand-in is no Ray cluster: workers do not
join, and the command that is handed in runs as a process of the head. It has the commands that KubeRay 1.6 puts into
pods (`start`, `health-check`, `job submit|status|logs`, `stop`, `kuberay-autoscaler`) and the paths of the dashboard
that it and its probes call. `real_ray.py` has the real one, which is heavy.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from textwrap import dedent

from tests.cluster.cluster import Cluster
from tests.cluster.images import python_image

IMAGE = "jobyard.test/ray-stand-in:1"
SCRIPT = dedent(
    '''\
    #!/bin/python3
    """A stand-in for Ray, for tests of Jobyard."""
    import json, os, shlex, socket, subprocess, sys, threading, time, urllib.error, urllib.request
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    DASHBOARD, AGENT, GCS = 8265, 52365, 6379
    JOBS = {}


    class Job:
        def __init__(self, entrypoint):
            self.entrypoint, self.status, self.log = entrypoint, "RUNNING", b""
            self.process = subprocess.Popen(
                ["bash", "-c", entrypoint], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            threading.Thread(target=self.read, daemon=True).start()

        def read(self):
            while data := os.read(self.process.stdout.fileno(), 65536):
                self.log += data
            code = self.process.wait()
            self.status = "SUCCEEDED" if code == 0 else "FAILED"


    class Dashboard(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = self.path.strip("/").split("/")
            if self.path.endswith("healthz"):
                return self.answer(200, b"success")
            if parts[:2] != ["api", "jobs"]:
                return self.answer(404, b"{}")
            if len(parts) == 2:
                return self.answer(200, json.dumps([self.about(name) for name in JOBS]).encode())
            if parts[2] not in JOBS:
                return self.answer(404, b"{}")
            if parts[3:] == ["logs"]:
                return self.answer(200, JOBS[parts[2]].log)
            self.answer(200, json.dumps(self.about(parts[2])).encode())

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            parts = self.path.strip("/").split("/")
            if parts[3:] == ["stop"]:
                JOBS[parts[2]].process.terminate()
                return self.answer(200, b'{"stopped": true}')
            JOBS[asked["submission_id"]] = Job(asked["entrypoint"])
            self.answer(200, json.dumps({"job_id": asked["submission_id"]}).encode())

        def about(self, name):
            job = JOBS[name]
            message = "" if job.status != "FAILED" else f"Job entrypoint command failed: {job.entrypoint}"
            return {"submission_id": name, "job_id": "01000000", "status": job.status, "message": message,
                    "entrypoint": job.entrypoint}

        def answer(self, code, body):
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass


    def serve(port):
        server = ThreadingHTTPServer(("0.0.0.0", port), Dashboard)
        threading.Thread(target=server.serve_forever, daemon=True).start()


    def ask(address, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{address}/api/jobs/{path}", data, timeout=10) as answer:
            return answer.read()


    def option(words, name):
        return words[words.index(name) + 1] if name in words else ""


    def start(words):
        serve(AGENT)
        if "--head" in words:
            serve(DASHBOARD)
            serve(GCS)
        print("a stand-in for ray start", *words, flush=True)
        threading.Event().wait()


    def job(verb, words):
        address = option(words, "--address")
        if verb == "submit":
            cut = words.index("--")
            entrypoint = shlex.join(words[cut + 1 :])  # as Ray does it
            ask(address, "", {"entrypoint": entrypoint, "submission_id": option(words, "--submission-id")})
        elif verb == "status":
            print(json.loads(ask(address, words[-1]))["status"])
        else:
            name, read = words[-1], 0
            while True:
                status = json.loads(ask(address, name))["status"]
                text = ask(address, f"{name}/logs")
                sys.stdout.buffer.write(text[read:])
                sys.stdout.flush()
                read = len(text)
                if status not in ("PENDING", "RUNNING"):
                    return
                time.sleep(0.2)


    def main(words):
        if words[0] == "start":
            start(words[1:])
        elif words[0] == "health-check":
            host, _, port = option(words, "--address").partition(":")
            socket.create_connection((host, int(port)), 3).close()
        elif words[0] == "job":
            job(words[1], words[2:])
        elif words[0] == "kuberay-autoscaler":
            threading.Event().wait()


    if __name__ == "__main__":
        try:
            main(sys.argv[1:])
        except (OSError, urllib.error.URLError) as error:
            sys.exit(f"ray: {error}")
    '''
)
# As its probes call it, `wget --tries 1 -T 2 -q -O- URL`: busybox 1.35 dies of -T.
WGET = '#!/bin/sh\nfor last; do :; done\nexec /bin/busybox wget -q -O- "$(echo "$last" | sed s/localhost/127.0.0.1/)"\n'


def import_ray_stand_in(cluster: Cluster) -> None:
    assert cluster.node is not None
    with tempfile.TemporaryDirectory() as directory:
        trees = {}
        for name, text in (("ray", SCRIPT), ("wget", WGET)):
            path = Path(directory) / name
            path.write_text(text)
            path.chmod(0o755)
            trees[f"/usr/local/bin/{name}"] = path
        archive = Path(directory) / "image.tar"
        python_image(archive, IMAGE, trees)
        cluster.node.import_images(archive)
