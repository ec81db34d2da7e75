"""How results look: the table on the terminal.

May depend on: figures.py, test/lib.
"""

import datetime
import os

from figures import verdict


def machine():
    """Cores, memory and CPU; no names."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), "unknown")
    with open("/proc/meminfo", encoding="ascii") as info:
        memory = int(info.readline().split()[1]) // 1024
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "memory_mb": memory,
            "kernel": os.uname().release, "load_average": os.getloadavg()[0],
            "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}


def settings(stage):
    """Versions, and what was set."""
    (version,), = stage.cluster.sql("SHOW server_version")
    with stage.broker.connection("/") as connection:
        broker = connection._impl.server_properties["version"]  # pylint: disable=protected-access
    return {"postgresql": version, "rabbitmq": broker, "rounds": stage.rounds, "quick": stage.quick,
            "postgresql_settings": {name: str(value) for name, value in stage.cluster.settings.items()
                                    if "director" not in name}}


def heading(results):
    here, made = results["machine"], results["settings"]
    quick = "; QUICK: rough figures" if made["quick"] else ""
    return (f"{here['cores']} cores, {here['memory_mb']} MB, {here['cpu']}; PostgreSQL {made['postgresql']}, "
            f"RabbitMQ {made['rabbitmq']}; {made['rounds']} rounds; load {here['load_average']:.1f}{quick}\n"
            f"{'':48} {'ours':>12} {'baseline':>12} {'':12} {'ratio':>6}  must  stretch")


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def line(result):
    sign = ">=" if result["better"] == "higher" else "<="
    asked = ["" if limit is None else f"{sign} {limit:g}" for limit in (result["must"], result["stretch"])]
    asked[1] = result.get("stretch_text", asked[1])
    ratio = f"{result['ratio']:.2f}" if result.get("ratio") is not None else ""
    return (f"{result['part'] + ': ' + result['name']:48} {number(result['ours']):>12} "
            f"{number(result.get('baseline')):>12} {result['unit']:12} {ratio:>6}  {asked[0]:8} {asked[1]:8} {verdict(result)}")
