"""Certificates for the tests, made by openssl in a folder of theirs."""

import itertools
import os
import ssl
import subprocess
import time


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair:
    """The files of a certificate and its key."""

    def __init__(self, folder, name):
        self.cert = os.path.join(folder, f"{name}.pem")
        self.key = os.path.join(folder, f"{name}.key")


class Authority(Pair):
    """Signs certificates, and is the file that others trust."""

    numbers = itertools.count(1000)

    def __init__(self, folder, name="authority"):
        super().__init__(str(folder), f"{name}-{next(self.numbers)}")
        self.folder = str(folder)
        openssl("req", "-x509", *CURVE, "-subj", f"/CN={name}", "-days", 2, "-keyout", self.key,
                "-out", self.cert)

    def issue(self, name, key=CURVE):
        """A certificate for localhost as a server, and for `name` as a client."""
        number = next(self.numbers)
        pair = Pair(self.folder, f"{name}-{number}")
        request, extra = pair.cert + ".csr", pair.cert + ".ext"
        with open(extra, "w") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", "-new", *key, "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key,
                "-set_serial", number, "-days", 2, "-extfile", extra, "-out", pair.cert)
        return pair

    def issue_for_seconds(self, name, seconds):
        """A certificate for `name` as a client that expires while somebody waits for it."""
        pair = self.issue(name)
        office = os.path.join(self.folder, f"office-{next(self.numbers)}")
        os.mkdir(office)
        with open(f"{office}/index", "w"), open(f"{office}/conf", "w") as conf:
            conf.write("[ca]\ndefault_ca=own\n[own]\ndefault_md=sha256\npolicy=any\nrand_serial=yes\n"
                       f"database={office}/index\nnew_certs_dir={office}\n"
                       "[any]\ncommonName=supplied\n")
        end = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))
        openssl("ca", "-batch", "-notext", "-config", f"{office}/conf", "-cert", self.cert,
                "-keyfile", self.key, "-in", pair.cert + ".csr", "-out", pair.cert, "-enddate", end)
        return pair

    def context(self, client=None, version=None):
        """What a client needs that trusts this authority, and may show a certificate."""
        made = ssl.create_default_context(cafile=self.cert)
        if client:
            made.load_cert_chain(client.cert, client.key)
        if version:
            made.minimum_version = made.maximum_version = version
        return made
