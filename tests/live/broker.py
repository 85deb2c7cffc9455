"""A Kafka with every kind of door: plain, TLS with client certificates, SASL in the clear and over TLS.

Who comes through the plain door may do everything. Of the two users `reader` may read all topics but `secrets`, and
delete groups and offsets; `stranger` may do nothing.
"""

import subprocess
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kit.kafka import KafkaBroker, free_ports

PASSWORDS = {"reader": 'p"a\\ss,=word', "stranger": "other"}
DOORS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
HIDDEN, DATA = "secrets", "data"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class GuardedBroker(KafkaBroker):
    """`config(door)` is what a client needs to come in by that door."""

    def start(self) -> "GuardedBroker":
        self.data_dir.mkdir(parents=True, exist_ok=True)
        make_certificates(self.data_dir)
        self.ports = dict(zip(DOORS, free_ports(len(DOORS)), strict=True))
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            for done in admin.alter_user_scram_credentials(_credentials(mechanism)).values():
                done.result(20)
        for done in admin.create_acls(_rights()).values():
            done.result(20)
        return self

    def _write_config(self) -> Path:
        config = super()._write_config()
        settings = dict(line.split("=", 1) for line in config.read_text().splitlines())
        doors = ",".join(f"{door}://127.0.0.1:{port}" for door, port in self.ports.items())
        for name in ("listeners", "advertised.listeners"):
            settings[name] += f",{doors}"
        settings["listener.security.protocol.map"] += "".join(f",{door}:{door}" for door in DOORS)
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.data_dir / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.data_dir / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "log.retention.ms": "-1",  # records here are years old
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "3600000",
        }
        users = " ".join(f"user_{user}={_quoted(password)}" for user, password in PASSWORDS.items())
        for door in ("sasl_plaintext", "sasl_ssl"):
            settings[f"listener.name.{door}.plain.sasl.jaas.config"] = _escaped(f"{_PLAIN} required {users};")
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                settings[f"listener.name.{door}.{mechanism}.sasl.jaas.config"] = f"{_SCRAM} required;"
            # Tokens need no signature here; their `sub` is the user.
            settings[f"listener.name.{door}.oauthbearer.sasl.jaas.config"] = (
                f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";'
            )
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return config

    def config(self, door: str = "PLAINTEXT", mechanism: str = "PLAIN", user: str = "reader") -> dict[str, str]:
        if door == "PLAINTEXT":
            return {"bootstrap.servers": self.bootstrap}
        config = {"bootstrap.servers": f"127.0.0.1:{self.ports[door]}", "security.protocol": door}
        if door.endswith("SSL"):
            config["ssl.ca.location"] = str(self.data_dir / "ca.pem")
        if door == "SSL":
            config |= {
                "ssl.certificate.location": str(self.data_dir / "client.crt"),
                "ssl.key.location": str(self.data_dir / "client.key"),
                "ssl.key.password": "key-password",
            }
        if door.startswith("SASL") and mechanism == "OAUTHBEARER":
            config |= {
                "sasl.mechanism": mechanism,
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={user}",
            }
        elif door.startswith("SASL"):
            config |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORDS[user]}
        return config


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


def _credentials(mechanism: ScramMechanism) -> list[UserScramCredentialUpsertion]:
    return [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for user, password in PASSWORDS.items()
    ]


def _rights() -> list[AclBinding]:
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY

    def binding(
        user: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType = allow
    ) -> AclBinding:
        return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, permission)

    owner = "CN=client"
    return [
        *[binding(user, ResourceType.TOPIC, "*", AclOperation.READ) for user in ("reader", owner)],
        *[binding(user, ResourceType.GROUP, "*", AclOperation.READ) for user in ("reader", owner)],
        *[binding(user, ResourceType.GROUP, "*", AclOperation.DELETE) for user in ("reader", owner)],
        binding("reader", ResourceType.TOPIC, HIDDEN, AclOperation.READ, deny),
    ]


def make_certificates(folder: Path) -> None:
    """A CA with its list of revoked certificates, a broker's certificate with its key in one file, a client's with a
    password on its key, and as a PKCS#12 store."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    def key(name: str) -> None:
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", name)

    for name in ("ca", "server", "client"):
        key(f"{name}.plain")
    openssl("req", "-x509", "-new", "-key", "ca.plain", "-days", "30", "-subj", "/CN=ca", "-out", "ca.pem")
    (folder / "san").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-new", "-key", f"{name}.plain", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        extensions = ("-extfile", "san") if name == "server" else ()
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.plain", "-CAcreateserial",
            "-days", "30", *extensions, "-out", f"{name}.crt",
        )  # fmt: skip
    (folder / "server.pem").write_text((folder / "server.plain").read_text() + (folder / "server.crt").read_text())
    openssl("pkcs8", "-topk8", "-in", "client.plain", "-out", "client.key", "-passout", "pass:key-password")
    openssl(
        "pkcs12", "-export", "-in", "client.crt", "-inkey", "client.plain", "-certfile", "ca.pem",
        "-out", "client.p12", "-passout", "pass:store-password",
    )  # fmt: skip
    (folder / "index").touch()
    (folder / "ca.cnf").write_text("[ca]\ndefault_ca=here\n[here]\ndatabase=index\ndefault_md=sha256\n")
    openssl(
        "ca", "-config", "ca.cnf", "-gencrl", "-keyfile", "ca.plain", "-cert", "ca.pem", "-crldays", "30",
        "-out", "crl.pem",
    )  # fmt: skip
